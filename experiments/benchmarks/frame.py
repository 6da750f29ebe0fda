"""The frame of all benchmarks: one way to run, to write a result, to print tables, and to put figures beside goals.

A benchmark is a module of this package with three functions:

    measure(run)    take the figures and return a result for JSON; raise SetupError where the machine cannot
    tables(result)  tables and notes for the terminal
    goals(result)   figures beside goals

`python -m experiments.benchmarks.frame NAME FOLDER [--quick]` runs one in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from experiments.results.provenance import provenance
from experiments.runtime import exit_status
from testbed.errors import CommandFailed
from topologies.units import MBIT_PER_S

KEPT, NOT_KEPT, NOTHING_PROMISED, NOT_JUDGED = "kept", "NOT KEPT", "promises 0", "not judged"
MET = {True: "met", False: "not met", None: NOT_JUDGED}
GOAL_HOSTS = 500  # of campuses that goals are for
ROOT = Path(__file__).parents[2]
DOWN_S = 20.0  # within which an interrupted process takes its campus down
Result = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """Order to a benchmark: the folder for its files, and its length.

    `hosts`: sizes of campuses, where it builds some; `machines`: over how many each is spread, beside one.
    """

    folder: Path
    quick: bool = False
    hosts: tuple[int, ...] = ()
    machines: tuple[int, ...] = ()
    progress: Callable[[int, int, str], None] = lambda done, total, what: None

    def each(self, items: Iterable[T], named: Callable[[T], str] = str) -> Iterator[T]:
        """Yield the items, with progress before each and after the last."""
        every = list(items)
        for done, item in enumerate(every):
            self.progress(done, len(every), named(item))
            yield item
        self.progress(len(every), len(every), "")


@dataclass(frozen=True, slots=True)
class Goal:
    """A measured figure beside its goal; `met` None: not judged."""

    what: str
    goal: str
    measured: str
    met: bool | None


def run_benchmark(name: str, run: Run) -> Result:
    """Run a benchmark and write `NAME.json` into its folder. Return the result with `origin`, `load_before` and `goals`.

    `load_before` is the machine's load average of the minute before.
    """
    module = import_module(f"experiments.benchmarks.{name}")
    run.folder.mkdir(parents=True, exist_ok=True)
    begun = {"origin": asdict(provenance()), "load_before": os.getloadavg()[0], "quick": run.quick}
    found = json.loads(json.dumps({**begun, **module.measure(run)}))
    result: Result = found | {"goals": [asdict(goal) for goal in module.goals(found)]}
    write_json(run.folder / f"{name}.json", result)
    return result


def print_result(name: str, result: Result, console: Console) -> None:
    """Print the machine, the tables and notes of a benchmark, and its goals."""
    console.print(
        f"{result['origin']['processor']}, {result['origin']['kernel']}; load {result['load_before']:.1f} before"
    )
    for each in import_module(f"experiments.benchmarks.{name}").tables(result):
        console.print(each)
    if result["goals"]:
        console.print(goals_table([(name, goals_of(result))]))


def goals_of(result: Result) -> tuple[Goal, ...]:
    """Return the goals that a result holds."""
    return tuple(Goal(**goal) for goal in result["goals"])


def goals_table(parts: Iterable[tuple[str, Iterable[Goal]]]) -> Table:
    """Return a table of goals, a section a benchmark."""
    table = Table("", "goal", "measured", "", box=box.SIMPLE)
    for name, goals in parts:
        table.add_section()
        table.add_row(name, style="bold")
        for goal in goals:
            table.add_row(f"  {goal.what}", goal.goal, goal.measured, MET[goal.met])
    return table


def table_of(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> Table:
    """Return a table; an empty row ends a section, and a row of one cell is the head of the next rows."""
    table = Table(*heads, title=title, caption=caption or None, box=box.SIMPLE)
    for row in rows:
        if row:
            table.add_row(*row, style="bold" if len(row) == 1 else None)
        else:
            table.add_section()
    return table


def at_most(what: str, measured: float, limit: float, shown: Callable[[float], str]) -> Goal:
    """Return the goal that a figure is at most `limit`."""
    return Goal(what, f"<= {shown(limit)}", shown(measured), measured <= limit)


def at_least(what: str, measured: float, limit: float, shown: Callable[[float], str]) -> Goal:
    """Return the goal that a figure is at least `limit`."""
    return Goal(what, f">= {shown(limit)}", shown(measured), measured >= limit)


def at_size(goal: Goal, hosts: int) -> Goal:
    """Return a goal for GOAL_HOSTS, not judged on a campus of another size."""
    if hosts == GOAL_HOSTS:
        return goal
    return replace(goal, what=f"{goal.what} (goal for {GOAL_HOSTS})", met=None)


def verdict(holds: bool, *, valid: bool) -> str:
    """Return the verdict on a promise; none of an invalid run."""
    return NOT_JUDGED if not valid else KEPT if holds else NOT_KEPT


def all_kept(what: str, verdicts: Sequence[str]) -> Goal:
    """Return the goal that a promise is kept wherever it is given and judged."""
    judged = [verdict for verdict in verdicts if verdict != NOT_JUDGED]
    kept = sum(verdict == KEPT for verdict in judged)
    promised = sum(verdict != NOTHING_PROMISED for verdict in judged)
    unjudged = len(verdicts) - len(judged)
    words = f"{kept} of {promised} kept" + (f", {unjudged} not judged" if unjudged else "")
    return Goal(what, "always", words, kept == promised if promised else None)


def in_ms(seconds: float) -> str:
    """Format a time in milliseconds."""
    return f"{seconds * 1e3:.3g} ms"


def in_mbit(bytes_per_s: float | None) -> str:
    """Format a rate in Mbit/s, without the unit."""
    return "-" if bytes_per_s is None else f"{bytes_per_s / MBIT_PER_S:.1f}"


def seconds_of(work: Callable[[], object]) -> float:
    """Return the duration of a call."""
    begin_s = time.perf_counter()
    work()
    return time.perf_counter() - begin_s


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return `p50`, `p99` and `max`."""
    p50, p99 = np.quantile(values, [0.5, 0.99])
    return {"p50": float(p50), "p99": float(p99), "max": float(max(values))}


def in_fresh_process(module: str, *words: object) -> Any:
    """Run `python -m module words` and return the JSON of its last line. CommandFailed, with the child's text, if it fails."""
    argv = [sys.executable, "-m", module, *map(str, words)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        printed, complaint = process.communicate()
    finally:
        if process.poll() is None:  # this process was interrupted: the child takes its campus down first
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=DOWN_S)
            process.kill()
            process.communicate()
    if process.returncode:
        raise CommandFailed(argv, process.returncode, complaint)
    return json.loads(printed.splitlines()[-1])


def write_json(file: Path, value: Any) -> None:
    """Write a JSON document."""
    file.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _child(words: Sequence[str]) -> None:
    name, folder, *quick = words
    result = run_benchmark(name, Run(Path(folder), quick=bool(quick)))
    print_result(name, result, Console(highlight=False, markup=False, width=120))


if __name__ == "__main__":
    sys.exit(exit_status.run(lambda: _child(sys.argv[1:])))
