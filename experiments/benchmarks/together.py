"""`measure all`: the live measurements one after the other, each a command of its own, and one page with goals beside figures.

A part is ended when its time is over; what it left is removed, and the page says so. The page shows what each part printed, and
how busy the machine was when it began: the kernel takes a campus apart in the background, so each waits until it is quiet.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from experiments.benchmarks import (
    bringup,
    decisions,
    fabric,
    isolation,
    kill_evaluation,
    links,
    migrations,
    rates,
    scale,
    snapshots,
)
from experiments.benchmarks.goals import JudgedFigure
from experiments.benchmarks.results import write_result
from experiments.results.pages import render
from experiments.results.provenance import provenance
from testbed.emulation.fidelity import CpuTimes

MOST_S = 29 * 60.0  # of all parts
END_S = 20.0  # a part that is told to end takes its campus down
PAGE, RESULT = "measure.html", "measure.json"
CLI = (sys.executable, "-m", "experiments.cli")
ROOT = Path(__file__).parents[2]
TAIL_LINES = 12
# a quiet machine: the share of its processors that is in use for so long, and how long it is waited for
QUIET, LOOK_S, WAIT_S = 0.05, 1.0, 20.0


@dataclass(frozen=True, slots=True)
class Part:
    """A measurement: `reclaimnet measure NAME ARGUMENTS`, and how its result is read."""

    name: str
    arguments: tuple[str, ...]
    most_s: float
    goals: Callable[[Mapping[str, Any]], Iterator[JudgedFigure]]


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a part; `why`: what kept it from running, if something did."""

    name: str
    command: str
    took_s: float
    why: str
    printed: str
    goals: tuple[JudgedFigure, ...]
    busy: float = 0.0  # share of the processors that was in use before it began


PARTS = (
    Part("killswitch", ("--trials", "40"), 300.0, kill_evaluation.judged_figures),
    Part("links", (), 180.0, links.judged_figures),
    Part("isolation", ("--quick",), 240.0, isolation.judged_figures),
    Part("migrations", ("--quick",), 300.0, migrations.judged_figures),
    Part("scale", ("--hosts", "54,250", "--seconds", "30"), 300.0, scale.judged_figures),
    Part("rates", ("--quick",), 300.0, rates.judged_figures),
    Part("fabric", ("--quick",), 180.0, fabric.judged_figures),
    Part("snapshots", ("--size", "100", "--quick"), 120.0, snapshots.judged_figures),
    Part("decisions", ("--quick",), 180.0, decisions.judged_figures),
    Part("bringup", ("--hosts", "100"), 120.0, bringup.judged_figures),
)


def measure_all(
    out: Path,
    parts: Sequence[Part] = PARTS,
    *,
    most_s: float = MOST_S,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Done]:
    """Run the parts within `most_s`; write measure.html and measure.json to `out`, anew after each."""
    limit_s, done = time.monotonic() + most_s, list[Done]()
    for part in parts:
        progress(f"measure {part.name}: at most {part.most_s / 60:.0f} minutes")
        busy = wait_until_quiet(min(WAIT_S, limit_s - time.monotonic()))
        done.append(replace(run_part(part, out, min(part.most_s, limit_s - time.monotonic())), busy=busy))
        told = [asdict(each) for each in done]
        write_result(out / RESULT, told)
        page = render(
            Path(__file__).with_name("together.html"),
            title="ReclaimNet measured",
            parts=done,
            quiet=QUIET,
            left=[each.name for each in parts[len(done) :]],
            origin=provenance(),
        )
        (out / PAGE).write_text(page, encoding="utf-8")
    return done


def wait_until_quiet(most_s: float) -> float:
    """Wait at most so long until hardly anything runs on this machine; the share of its processors that was last in use."""
    until_s, busy, before = time.monotonic() + most_s, 1.0, CpuTimes.now()
    while busy > QUIET and time.monotonic() + LOOK_S <= until_s:
        time.sleep(LOOK_S)
        now = CpuTimes.now()
        (busy, _), before = now.shares_since(before), now
    return busy


def run_part(part: Part, out: Path, most_s: float) -> Done:
    """Run one part for at most `most_s`, and read what it wrote."""
    words = ("measure", part.name, *part.arguments)
    command, began_s = " ".join(("reclaimnet", *words)), time.monotonic()
    if most_s <= 0.0:
        return Done(part.name, command, 0.0, "no time was left for it", "", ())
    result = out / part.name / f"{part.name}.json"
    result.unlink(missing_ok=True)
    process = subprocess.Popen(
        [*CLI, *words, "--out", str(out / part.name)],
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
    took_s = time.monotonic() - began_s
    goals = () if why else tuple(part.goals(json.loads(result.read_text())))
    return Done(part.name, command, took_s, why, printed, goals)


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Tell it to end, kill it with all of its session if it does not, and remove the campus that it may leave."""
    process.terminate()
    try:
        return process.communicate(timeout=END_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        told = process.communicate()
        subprocess.run([*CLI, "clean"], cwd=ROOT, capture_output=True, check=False)
        return told


def together_table(done: Sequence[Done]) -> Table:
    """Every goal, part by part."""
    table = Table(box=box.SIMPLE)
    for head in ("", "goal", "measured", ""):
        table.add_column(head)
    for each in done:
        table.add_section()
        word = (
            "did not run" if each.why else f"machine {each.busy:.0%} busy before" if each.busy > QUIET else ""
        )
        table.add_row(each.name, "", f"{each.took_s:.0f} s", word, style="bold")
        for goal in each.goals:
            verdict = {True: "met", False: "not met", None: ""}[goal.met]
            table.add_row(f"  {goal.what}", goal.goal, goal.measured, verdict)
        if each.why:
            table.add_row(f"  {each.why}", "", "", "")
    return table
