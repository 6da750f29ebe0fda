"""Cost of a snapshot to the job that goes on: standing still for the write, and a copy in memory, in one run.

A process holds a state of so many bytes and computes in steps. Each step rewrites a part of the state, round and round,
and then leaves the processor alone. Both ways alternate, a snapshot of each in turn, since a machine's speed
changes from second to second; a step without a snapshot before each gives the time of rewriting by itself:

    stop    the process writes its state to a file, and goes on.
    copy    as agents do (`testbed.workloads.copying`): a thread allocates memory while steps go on, the state is copied
            between two steps, and a thread writes the copy.

Of each are given the *pause*, without any step, and the time *lost* in all: the pause and the slowdown of steps until the file
was written (page faults, the other core's memory traffic, the interpreter). More jobs than one on a machine are not measured.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from experiments.benchmarks.frame import (
    Goal,
    Result,
    Run,
    at_most,
    in_fresh_process,
    in_ms,
    quantiles,
    seconds_of,
    table_of,
)
from testbed.errors import SetupError
from testbed.workloads.base import write_parts
from testbed.workloads.copying import CopiedSnapshot, PartsCopy
from testbed.workloads.memory import available_bytes
from testbed.workloads.messages import Snapshot, SnapshotFailed, SnapshotTaken

SIZES_MB: Final = (1, 10, 100, 1000)
WAYS: Final = ("stop", "copy")
# of 100 MB of state, the 99 % quantile
GOAL_S: Final = 0.020
GOAL_MB: Final = 100
BLOCK_BYTES: Final = 64 << 10
STEP_S: Final = 0.05
# a step of a job that changes a little of its state, and of one that changes all of it, as training does
DIRTY_SHARES: Final = (0.1, 1.0)
# snapshots of each way at the size of the goal: enough for its quantile. Else fewer: 1 GB takes seconds each
SNAPSHOTS: Final = 100
SNAPSHOTS_ELSE: Final = 20


def measure(run: Run) -> dict[str, Any]:
    """Run the comparison, a process of its own for each size. SetupError: too little room or memory."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="reclaimnet-snapshots-") as folder:
        for size_mb in run.each((GOAL_MB,) if run.quick else SIZES_MB, "{} MB".format):
            size_bytes = size_mb * 1_000_000
            room = min(available_bytes() / 3.0, shutil.disk_usage(folder).free / 2.0)
            if size_bytes > room:
                raise SetupError(f"{size_bytes} bytes of state: memory and {folder} have room for {room:.0f}")
            count = SNAPSHOTS if size_mb == GOAL_MB else SNAPSHOTS_ELSE
            count = max(3, count // 10) if run.quick else count
            for dirty_share in DIRTY_SHARES:
                ways = in_fresh_process(__name__, size_bytes, dirty_share, count, folder)
                of = {"size_mb": size_mb, "dirty_share": dirty_share}
                rows += [{**of, "way": way, **figures} for way, figures in ways.items()]
    return {"rows": rows, "load": os.getloadavg()[0]}


def goals(result: Result) -> Iterator[Goal]:
    """Yield the longest pause for a copied snapshot of GOAL_MB."""
    found = [row["pause_p99_s"] for row in result["rows"] if (row["size_mb"], row["way"]) == (GOAL_MB, "copy")]
    yield at_most(f"pause for a snapshot of {GOAL_MB} MB, copied in memory, p99", max(found), GOAL_S, in_ms)


def tables(result: Result) -> Iterator[Table]:
    """Yield a row for each size, share that a step rewrites, and way."""
    rows: list[tuple[str, ...]] = []
    for row in result["rows"]:
        if row["way"] == WAYS[0]:
            rows.append(())
        times = (in_ms(row[key]) for key in ("pause_p50_s", "pause_p99_s", "lost_s"))
        rows.append((f"{row['size_mb']} MB", f"{row['dirty_share']:.0%}", row["way"], *times))
    heads = ("state", "rewritten a step", "way", "pause p50", "pause p99", "lost a snapshot")
    yield table_of(f"steps of {STEP_S:g} s; load {result['load']:.1f}", heads, rows)


# ---------------------------------------------------------------- in a process of its own


class Job:
    """State and steps that rewrite a part of it, and snapshots beside them."""

    def __init__(self, size_bytes: int, dirty_share: float, path: Path) -> None:
        self.path = path
        self._alone: list[float] = []
        self.state = bytearray(os.urandom(1 << 20) * (size_bytes // (1 << 20) + 1))[:size_bytes]
        self._fresh = os.urandom(BLOCK_BYTES)
        self._blocks = max(1, size_bytes // BLOCK_BYTES)
        self._dirty, self._next = max(1, round(dirty_share * self._blocks)), 0

    def step(self) -> float:
        """Rewrite a part of the state, then do nothing, as while a GPU computes. Return the seconds of rewriting."""
        began_s = time.perf_counter()
        view = memoryview(self.state)
        for _ in range(self._dirty):
            at = self._next * BLOCK_BYTES
            part = view[at : at + BLOCK_BYTES]
            part[:] = self._fresh[: len(part)]
            self._next = (self._next + 1) % self._blocks
        rewritten_s = time.perf_counter() - began_s
        time.sleep(max(0.0, STEP_S - rewritten_s))
        return rewritten_s

    def rest(self) -> None:
        """Take a step without a snapshot, and note its time."""
        self._alone.append(self.step())

    def until(self, over: Callable[[], bool]) -> float:
        """Take steps until it is so; return the time of rewriting beyond that of steps by themselves."""
        alone_s, beyond_s = statistics.median(self._alone), 0.0
        while not over():
            beyond_s += self.step() - alone_s
        return beyond_s

    def stop(self) -> tuple[float, float]:
        """Stand still for the write; return the pause, and what was lost in all."""
        took_s = seconds_of(lambda: write_parts(self.path, [self.state]))
        return took_s, took_s

    def copy(self) -> tuple[float, float]:
        """Copy as an agent's job does; return as `stop`."""
        answers: list[SnapshotTaken | SnapshotFailed] = []
        began_s = time.perf_counter()
        order = Snapshot(0, str(self.path), stop=False)
        state = PartsCopy(lambda: [self.state], len(self.state))
        snapshot = CopiedSnapshot(order, state, lambda: None, answers.append)
        snapshot.stood_s = time.perf_counter() - began_s
        lost_s = self.until(lambda: snapshot.ready)
        if not snapshot.copy(0):
            raise SetupError(f"no copy: {snapshot.obstacle}")
        lost_s += snapshot.stood_s + self.until(lambda: bool(answers))
        snapshot.join()
        [taken] = answers
        if isinstance(taken, SnapshotFailed):
            raise SetupError(f"no snapshot: {taken.reason}")
        return taken.pause_s, lost_s


def main(size_bytes: int, dirty_share: float, count: int, folder: str) -> None:
    """Take `count` snapshots of each way; print their figures as JSON."""
    job = Job(size_bytes, dirty_share, Path(folder) / "snapshot")
    ways = {"stop": job.stop, "copy": job.copy}
    seen: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for round_number in range(count + 1):
        for way, take in ways.items():
            job.rest()
            costs = take()
            job.path.unlink()
            if round_number:  # the first round touches files and memory
                seen[way].append(costs)
    figures = {}
    for way, costs_s in seen.items():
        pauses_s, lost_s = zip(*costs_s, strict=True)
        of = quantiles(pauses_s)
        figures[way] = {"pause_p50_s": of["p50"], "pause_p99_s": of["p99"], "lost_s": statistics.median(lost_s)}
    print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
