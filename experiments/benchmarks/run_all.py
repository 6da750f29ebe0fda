"""`measure all`: the benchmarks one after the other, short, each in a process of its own; one page with goals beside figures.

A part is ended when its time is over. Its campus is then removed, and the page shows the reason. The page also shows the printed
tables, and the load of the machine before each part: the kernel takes a campus apart in the background, so each part waits until
the machine is quiet.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.table import Table

from experiments.benchmarks import BENCHMARKS
from experiments.benchmarks.frame import DOWN_S, ROOT, Goal, Run, goals_of, goals_table, write_json
from experiments.results.pages import render
from experiments.results.provenance import provenance
from testbed.emulation.fidelity import CpuTimes

MAX_S = 29 * 60.0  # of all parts
PAGE, RESULT = "measure.html", "measure.json"
FRAME = (sys.executable, "-m", "experiments.benchmarks.frame")
CLEAN = (sys.executable, "-m", "experiments.cli", "clean")
TAIL_LINES = 12
# of a quiet machine: the most of its processors in use for LOOK_S; the longest wait for it
QUIET, LOOK_S, WAIT_S = 0.05, 1.0, 20.0


@dataclass(frozen=True, slots=True)
class Part:
    """Outcome of a benchmark. `why`: the reason why it did not run; `busy`: the share of the processors in use before it."""

    name: str
    took_s: float
    why: str
    printed: str
    goals: tuple[Goal, ...]
    busy: float = 0.0


def measure_all(run: Run, *, most_s: float = MAX_S) -> list[Part]:
    """Run all benchmarks within `most_s`; write measure.html and measure.json to its folder, again after each."""
    limit_s, done, names, out = time.monotonic() + most_s, list[Part](), list(BENCHMARKS), run.folder
    for name in run.each(BENCHMARKS):
        part_s, _ = BENCHMARKS[name]
        busy = wait_until_quiet(min(WAIT_S, limit_s - time.monotonic()))
        part = run_part(name, out / name, min(part_s, limit_s - time.monotonic()))
        done.append(replace(part, busy=busy))
        write_json(out / RESULT, [asdict(each) for each in done])
        page = render(
            Path(__file__).with_name("run_all.html"),
            title="ReclaimNet measured",
            parts=done,
            quiet=QUIET,
            left=names[len(done) :],
            origin=provenance(),
        )
        (out / PAGE).write_text(page, encoding="utf-8")
    return done


def wait_until_quiet(most_s: float) -> float:
    """Wait until hardly anything runs here, at most `most_s`. Return the share of the processors that was last in use."""
    until_s, busy, before = time.monotonic() + most_s, 1.0, CpuTimes.now()
    while busy > QUIET and time.monotonic() + LOOK_S <= until_s:
        time.sleep(LOOK_S)
        now = CpuTimes.now()
        (busy, _), before = now.shares_since(before), now
    return busy


def run_part(name: str, folder: Path, most_s: float) -> Part:
    """Run one benchmark for at most `most_s`, and read its result."""
    if most_s <= 0.0:
        return Part(name, 0.0, "no time was left for it", "", ())
    result, began_s = folder / f"{name}.json", time.monotonic()
    result.unlink(missing_ok=True)
    process = subprocess.Popen(
        [*FRAME, name, folder, "--quick"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    printed = complaint = why = ""
    try:
        printed, complaint = process.communicate(timeout=most_s)
    except subprocess.TimeoutExpired:
        why = f"not over after {most_s:.0f} s"
    finally:
        if process.poll() is None:
            printed, complaint = _end(process)
    if not why and process.returncode:
        last = (complaint or printed).strip().splitlines()[-TAIL_LINES:]
        why = "\n".join(last) or f"exit status {process.returncode}"
    goals = () if why else goals_of(json.loads(result.read_bytes()))
    return Part(name, time.monotonic() - began_s, why, printed, goals)


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Terminate a process; if it stays, kill its session and remove the campus that it may leave."""
    process.terminate()
    try:
        return process.communicate(timeout=DOWN_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        printed = process.communicate()
        subprocess.run(CLEAN, cwd=ROOT, capture_output=True, check=False)
        return printed


def together_table(parts: Sequence[Part]) -> Table:
    """Return a table of all goals, part by part, with the reasons of parts that did not run."""

    def head(part: Part) -> str:
        busy = f", machine {part.busy:.0%} busy before" if part.busy > QUIET else ""
        return f"{part.name}, {part.took_s:.0f} s{busy}"

    return goals_table(
        (head(part), [Goal(part.why, "", "did not run", None)] if part.why else part.goals) for part in parts
    )
