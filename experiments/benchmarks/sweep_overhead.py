"""What a sweep adds to its runs: the time for which a worker waits between two of them, in processes here and under Dask on
loopback.

Each task notes when it began and ended (CLOCK_MONOTONIC, one machine) and in which process. From a process's tasks in order
follow the gaps between them: the time for which the engine, and not a run, had the worker. A gap does not depend on how long
the run before was, so short tasks show it, and a share of a longer run follows. Runs are real ones, with their figures and the
digest of their events. Apart from the gaps stands the start: until each process has begun its first run, with all that it
imports.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.benchmarks.results import write_result
from experiments.inputs.scenario import demo_scenario
from experiments.runtime.engines import Engine
from experiments.runtime.tasks import RUNS, Task, results_of
from experiments.sweeps.play import play_case
from testbed.errors import SetupError

RUN_S = 5.0  # of the run that a share is told of
MOST_SHARE = 0.05  # of it, that an engine may take
WARM = 1  # gaps of each process that are the start's: what the first run imports and compiles
WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class EngineOverhead:
    """Of one engine; a run that was played twice counts twice. `start_s`: until the last of its processes began its first run."""

    engine: str
    processes: int
    runs: int
    start_s: float
    run_median_s: float
    gap_median_s: float
    gap_mean_s: float
    gap_most_s: float

    @property
    def share(self) -> float:
        """The share that is added to a run of RUN_S seconds."""
        return self.gap_mean_s / RUN_S


def timed(scenario: Any, number: int, folder: str) -> dict[str, Any]:
    """A run. When it was played is noted in a file of this process: no part of its result, which is the same wherever it is
    played."""
    began_s = time.monotonic()
    result = play_case(replace(scenario, seed=number), (), "", False)
    with Path(folder, f"{os.getpid()}.times").open("a") as times:
        times.write(f"{began_s} {time.monotonic()}\n")
    return result


def measure_sweep_overhead(out: Path, runs: int, processes: int) -> dict[str, Any]:
    """Both engines, the one after the other; Dask only where it is installed. Written to `out`/sweep.json."""
    found = [_measured("processes", Engine(processes, prefer_native=True), runs)]
    why = ""
    try:
        with _scheduler(processes) as address:
            found.append(_measured("Dask", Engine(dask=address, prefer_native=True), runs))
    except SetupError as error:
        why = f"{error}"
    told = {
        "run_s": RUN_S,
        "engines": [{**asdict(each), "share": each.share} for each in found],
        "load": os.getloadavg()[0],
        "not_measured": why,
    }
    write_result(out / "sweep.json", told)
    return told


def sweep_table(told: dict[str, Any]) -> Table:
    """The table for a terminal."""
    table = Table(title=f"What a sweep adds to a run of {told['run_s']:g} s (at most {MOST_SHARE:.0%})")
    for name in ("engine", "processes", "runs", "start", "a run here", "gap p50", "mean", "most", "share"):
        table.add_column(name, justify="left" if name == "engine" else "right")
    for each in told["engines"]:
        gaps = [f"{1e3 * each[f'gap_{name}_s']:.1f} ms" for name in ("median", "mean", "most")]
        table.add_row(
            each["engine"],
            str(each["processes"]),
            str(each["runs"]),
            f"{each['start_s']:.1f} s",
            f"{each['run_median_s']:.2f} s",
            *gaps,
            f"{each['share']:.2%}",
        )
    return table


def _measured(name: str, engine: Engine, runs: int) -> EngineOverhead:
    scenario = demo_scenario(hosts=4, buildings=2, seconds=20.0)
    with tempfile.TemporaryDirectory() as folder:
        tasks = [Task(f"run {number}", timed, (scenario, number, folder)) for number in range(runs)]
        began_s = time.monotonic()
        results_of(tasks, Path(folder, RUNS), "", engine.opened)
        of_each = [
            sorted(tuple(map(float, line.split())) for line in path.read_text().splitlines())
            for path in Path(folder).glob("*.times")
        ]
    gaps_s = [
        after[0] - before[1] for spans in of_each for before, after in list(pairwise(spans))[WARM:]
    ] or [0.0]
    return EngineOverhead(
        name,
        len(of_each),
        sum(map(len, of_each)),
        max(spans[0][0] for spans in of_each) - began_s,
        statistics.median(ended - began for spans in of_each for began, ended in spans),
        statistics.median(gaps_s),
        statistics.fmean(gaps_s),
        max(gaps_s),
    )


@contextmanager
def _scheduler(workers: int) -> Iterator[str]:
    """The address of a scheduler with so many workers on loopback, which end with the block. SetupError: Dask is not
    installed."""
    try:
        import distributed  # noqa: F401
    except ModuleNotFoundError:
        raise SetupError("Dask was not measured: pip install 'reclaimnet-testbed[dask]'") from None
    quiet = ["--no-dashboard", "--host", "127.0.0.1"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "scheduler.json")
        started = [_started("scheduler", folder, "--scheduler-file", str(file), "--port", "0", *quiet)]
        try:
            end_s = time.monotonic() + WAIT_S
            while not (file.exists() and file.read_text().strip()):
                if time.monotonic() > end_s:
                    raise SetupError(f"no Dask scheduler stood within {WAIT_S:.0f} s")
                time.sleep(0.05)
            words = ("--scheduler-file", str(file), "--nthreads", "1", "--no-nanny", *quiet)
            started += [_started("worker", folder, *words) for _ in range(workers)]
            yield json.loads(file.read_text())["address"]
        finally:
            for process in reversed(started):
                process.kill()  # asked to end, a worker would wait for its scheduler
            for process in started:
                process.wait()


def _started(what: str, folder: str, *words: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", f"distributed.cli.dask_{what}", *words]
    return subprocess.Popen(argv, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
