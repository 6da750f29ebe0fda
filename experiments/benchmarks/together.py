"""`measure all`: the live measurements one after the other, each a command of its own, and one page with goals beside figures.

A part is ended when its time is over; what it left is removed, and the page says so. The page shows what each part printed.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from experiments.benchmarks import bringup, kill_evaluation, links, migrations, observer, rates, scale
from experiments.benchmarks.isolation import KEPT, NOT_JUDGED
from experiments.results.pages import render
from experiments.results.provenance import provenance
from topologies.units import GBIT_PER_S, format_rate

MOST_S = 29 * 60.0  # of all parts
END_S = 20.0  # a part that is told to end takes its campus down
PAGE, RESULT = "measure.html", "measure.json"
CLI = (sys.executable, "-m", "experiments.cli")
ROOT = Path(__file__).parents[2]
TAIL_LINES = 12
# what ignores its grant in these rows of `isolation` competes as research: no switch can tell
AS_RESEARCH = ("sockets", "udp", "frames-unmarked", "ethertype")


@dataclass(frozen=True, slots=True)
class JudgedFigure:
    """A figure beside its goal; `met` None: not judged."""

    what: str
    goal: str
    measured: str
    met: bool | None


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


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _killswitch(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    for name, wanted in kill_evaluation.GOALS.items():
        for quantile, goal_s in wanted.items():
            what = f"{kill_evaluation.WORDS[name]}, {quantile}"
            if name in result["paths"]:
                found_s = result["paths"][name]["last_let_in_s"][quantile]
                yield JudgedFigure(what, f"<= {_ms(goal_s)}", _ms(found_s), found_s <= goal_s)
            else:
                yield JudgedFigure(what, f"<= {_ms(goal_s)}", result["unavailable"][name], None)


def _links(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    delayed, slow, met, goals = result["delayed"], result["delayed_and_slow"], result["met"], links.GOALS
    for quantile in ("p50", "p99"):
        key = f"rtt_{quantile}_s"
        what = f"round trip of 2 x 5 ms, {quantile}"
        yield JudgedFigure(what, f"<= {_ms(goals[key])}", _ms(delayed["rtt_s"][quantile]), met[key])
    key, found = "throughput_bytes_per_s", delayed["bytes_per_s"]
    yield JudgedFigure("one TCP flow at 5 ms", f">= {format_rate(goals[key])}", format_rate(found), met[key])
    off = slow["over_declared"] / slow["without_delay"] - 1.0
    yield JudgedFigure("rate with delay", f"within {goals['rate_off']:.0%}", f"{off:+.1%}", met["rate_off"])
    wrong = max(delayed[when]["wrong"] for when in ("idle", "busy"))
    yield JudgedFigure(
        "frames wrong by a tenth of the delay", f"<= {goals['wrong']:.0%}", f"{wrong:.2%}", met["wrong"]
    )


def _observer(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    cost = f"{result['cost']['median']:.1%}"
    yield JudgedFigure("what observing costs a TCP flow", f"<= {observer.GOAL:.0%}", cost, result["met"])


def _isolation(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    ours = [row for row in result["rows"] if row["system"] == "ours"]
    marked = [row for row in ours if row["row"] not in AS_RESEARCH and not row["row"].endswith("-unmarked")]
    yield _kept("research keeps its reserve, of migrations in their classes", [r["reserve"] for r in marked])
    yield _kept("research keeps what Theorem 4 leaves", [row["theorem"] for row in ours])


def _migrations(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    for run in result["runs"]:
        if run["system"] == "ours":
            waves = run["waves"]
            yield _kept("admitted migrations are in time (Theorem 3)", [wave["promise"] for wave in waves])
            yield _kept("research keeps its reserve beside them", [wave["reserve"] for wave in waves])
    for words, printed, here, _ in migrations.paper_rows(result):
        yield JudgedFigure(words, f"paper A: {printed}" if printed else "", here, None)


def _kept(what: str, verdicts: Sequence[str]) -> JudgedFigure:
    judged = [verdict for verdict in verdicts if verdict != NOT_JUDGED]
    kept = sum(verdict == KEPT for verdict in judged)
    promised = sum(verdict != "promises 0" for verdict in judged)
    unjudged = len(verdicts) - len(judged)
    words = f"{kept} of {promised} kept" + (f", {unjudged} not judged" if unjudged else "")
    return JudgedFigure(what, "always", words, kept == promised if promised else None)


def _scale(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    run = result["runs"][-1]
    idle, work, goals = run["idle"], run["work"], scale.GOALS
    memory = sum(idle.get(f"memory_{part}_bytes", 0.0) for part in ("agents", "jobs"))
    busy = work.get("cpu_machine", 0.0) / result["cpus"]
    figures = {
        "agents_registered_s": (work["agents_registered_s"], "{:.1f} s"),
        "idle_agents": (idle.get("cpu_agents", 0.0), "{:.2f} processors"),
        "idle_memory_bytes": (memory, "{:.3g} bytes"),
        "busy_share": (busy, "{:.0%}"),
        "decisions_p99_s": (work.get("decisions_p99_s", 0.0), "{:.4f} s"),
        "reports_p99_s": (work.get("reports_p99_s", 0.0), "{:.3f} s"),
        "down_s": (work["down_s"], "{:.1f} s"),
    }
    for key, (found, shape) in figures.items():
        what = f"{run['hosts']} hosts (goal for 500): {key.rsplit('_', 1)[0].replace('_', ' ')}"
        met = found <= goals[key] if work["valid"] else None
        yield JudgedFigure(what, f"<= {shape.format(goals[key])}", shape.format(found), met)


def _rates(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    low, high = rates.GOAL
    for name, systems in result["settings"].items():
        worst = systems["ours, BBR, marked first"]["worst_goodput_over_grant"]
        met = result["verdict"][name]["ours, BBR, marked first"]
        yield JudgedFigure(f"goodput over grant, {name}", f"{low} to {high}", f"{worst:.3f}", met)


def _fabric(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    pair = result["openvswitch"]["one_pair_bytes_per_s"]
    yield JudgedFigure("Open vSwitch, one pair", ">= 2 Gbit/s", format_rate(pair), pair >= 2 * GBIT_PER_S)
    for name in ("local", "remote"):
        gap_s = result["failover"][name]["gap_s"]["p99"]
        yield JudgedFigure(f"gap after a {name} cut, p99", "<= 50 ms", _ms(gap_s), gap_s <= 0.05)
    times = result["openvswitch"]["up_s"] / result["bridge"]["up_s"]
    yield JudgedFigure("Open vSwitch's bring-up over bridges'", "<= 1.5", f"{times:.1f}", times <= 1.5)


def _snapshots(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    goal = result["goal"]
    found = [row["pause_p99_s"] for row in result["rows"] if row["way"] == "copy"]
    what = f"pause for a snapshot of {goal['size_mb']} MB, copied in memory, p99"
    yield JudgedFigure(what, f"<= {_ms(goal['pause_p99_s'])}", _ms(max(found)), goal["met"])


def _decisions(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    for hosts, goal_s in result["targets"]["tick_s"].items():
        if size := result["sizes"].get(str(hosts)):
            found_s = size["tick"]["median_s"]
            yield JudgedFigure(
                f"a tick at {hosts} hosts, median", f"<= {_ms(goal_s)}", _ms(found_s), found_s <= goal_s
            )


def _bringup(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    for way, target in bringup.TARGETS.items():
        times = result["times_faster"][way]
        what = f"{result['hosts']} hosts {way}, against stock Mininet"
        yield JudgedFigure(what, f">= {target:g}x", f"{times:.1f}x", times >= target)


PARTS = (
    Part("killswitch", ("--trials", "40"), 300.0, _killswitch),
    Part("links", ("--quick",), 120.0, _links),
    Part("observer", ("--rounds", "8"), 120.0, _observer),
    Part("isolation", ("--quick",), 240.0, _isolation),
    Part("migrations", ("--quick",), 300.0, _migrations),
    Part("scale", ("--hosts", "54,250", "--seconds", "30"), 300.0, _scale),
    Part("rates", ("--quick",), 300.0, _rates),
    Part("fabric", ("--quick",), 180.0, _fabric),
    Part("snapshots", ("--size", "100", "--quick"), 120.0, _snapshots),
    Part("decisions", ("--quick",), 180.0, _decisions),
    Part("bringup", ("--hosts", "100"), 120.0, _bringup),
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
        done.append(run_part(part, out, min(part.most_s, limit_s - time.monotonic())))
        told = [asdict(each) for each in done]
        (out / RESULT).write_text(json.dumps(told, indent=1) + "\n")
        page = render(
            Path(__file__).with_name("together.html"),
            title="ReclaimNet measured",
            parts=done,
            left=[each.name for each in parts[len(done) :]],
            origin=provenance(),
        )
        (out / PAGE).write_text(page, encoding="utf-8")
    return done


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
        table.add_row(each.name, "", f"{each.took_s:.0f} s", "did not run" if each.why else "", style="bold")
        for goal in each.goals:
            verdict = {True: "met", False: "not met", None: ""}[goal.met]
            table.add_row(f"  {goal.what}", goal.goal, goal.measured, verdict)
        if each.why:
            table.add_row(f"  {each.why}", "", "", "")
    return table
