"""Cost of a snapshot to the job that goes on: standing still for the write, a copy in memory, and fork(2), in one run.

A process holds a state of so many bytes and computes in steps, each of which rewrites a part of it, round and round, and then
leaves the processor alone. The three ways alternate, a snapshot of each in turn, since a machine's speed changes from second to
second; a step without a snapshot before each gives the time of rewriting by itself:

    stop    the process writes its state to a file, and goes on
    copy    as agents do (`testbed.workloads.copying`): memory is taken by a thread while steps go on, the state is copied
            between two steps, a thread writes the copy
    fork    a child writes the state as it was; the parent goes on, and each page that it changes first is copied by the kernel

Of each are given the *pause*, without any step; the time *lost* in all, which is the pause and the slowdown of steps until the
file was written (page faults, the other core's memory traffic, the interpreter); the time from the order until the file is
*written*, without the store's sync, which is the same for all; and the most *memory* held beside the state. A fork's memory is
the pages copied by the parent's faults until the child ended. More jobs than one on a machine are not measured.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from experiments.benchmarks.frame import Goal, Result, Run, at_most, in_fresh_process, in_ms, table_of
from experiments.results.accounting import quantile
from testbed.errors import SetupError
from testbed.workloads.base import write_parts
from testbed.workloads.copying import CopiedSnapshot, PartsCopy
from testbed.workloads.memory import available_bytes
from testbed.workloads.messages import Snapshot, SnapshotFailed, SnapshotTaken

SIZES_MB: Final = (1, 10, 100, 1000)
WAYS: Final = ("stop", "copy", "fork")
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
        for size_mb in (GOAL_MB,) if run.quick else SIZES_MB:
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
    found = [
        row["pause_p99_s"] for row in result["rows"] if (row["size_mb"], row["way"]) == (GOAL_MB, "copy")
    ]
    yield at_most(f"pause for a snapshot of {GOAL_MB} MB, copied in memory, p99", max(found), GOAL_S, in_ms)


def tables(result: Result) -> Iterator[Table]:
    """Yield a row for each size, share that a step rewrites, and way."""
    rows: list[tuple[str, ...]] = []
    for row in result["rows"]:
        if row["way"] == WAYS[0]:
            rows.append(())
        times = (f"{1e3 * row[key]:.1f} ms" for key in ("pause_p50_s", "pause_p99_s", "lost_s", "written_s"))
        memory = f"{row['extra_bytes'] / 1e6:.0f} MB"
        rows.append((f"{row['size_mb']} MB", f"{row['dirty_share']:.0%}", row["way"], *times, memory))
    heads = ("state", "rewritten a step", "way", "pause p50", "pause p99", "lost a snapshot", "until written")
    title = f"steps of {STEP_S:g} s; load {result['load']:.1f}"
    yield table_of(title, (*heads, "memory beside"), rows)


# ---------------------------------------------------------------- in a process of its own


@dataclass
class SnapshotSamples:
    """Values of one way, one a snapshot."""

    pause_s: list[float] = field(default_factory=list)
    lost_s: list[float] = field(default_factory=list)
    written_s: list[float] = field(default_factory=list)
    extra_bytes: list[int] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Return quantiles of the pause, medians of the rest, the most memory."""
        return {
            "snapshots": len(self.pause_s),
            "pause_p50_s": quantile(self.pause_s, 0.5) or 0.0,
            "pause_p99_s": quantile(self.pause_s, 0.99) or 0.0,
            "lost_s": statistics.median(self.lost_s),
            "written_s": statistics.median(self.written_s),
            "extra_bytes": max(self.extra_bytes),
        }


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

    def stop(self, seen: SnapshotSamples) -> None:
        """Stand still for the write."""
        began_s = time.perf_counter()
        write_parts(self.path, [self.state])
        took_s = time.perf_counter() - began_s
        self.note(seen, took_s, took_s, took_s, 0)

    def copy(self, seen: SnapshotSamples) -> None:
        """Copy as an agent's job does."""
        told: list[tuple[SnapshotTaken | SnapshotFailed, float]] = []
        began_s = time.perf_counter()
        order = Snapshot(0, str(self.path), stop=False)
        state = PartsCopy(lambda: [self.state], len(self.state))
        snapshot = CopiedSnapshot(
            order, state, lambda: None, lambda answer: told.append((answer, time.perf_counter()))
        )
        snapshot.stood_s = time.perf_counter() - began_s
        lost_s = self.until(lambda: snapshot.ready)
        if not snapshot.copy(0):
            raise SetupError(f"no copy: {snapshot.obstacle}")
        lost_s += snapshot.stood_s + self.until(lambda: bool(told))
        snapshot.join()
        [(taken, ended_s)] = told
        if isinstance(taken, SnapshotFailed):
            raise SetupError(f"no snapshot: {taken.reason}")
        self.note(seen, taken.pause_s, lost_s, ended_s - began_s, state.size_bytes)

    def note(
        self, seen: SnapshotSamples, pause_s: float, lost_s: float, written_s: float, extra_bytes: int
    ) -> None:
        """Note the cost of a snapshot, and remove its file."""
        self.path.unlink()
        seen.pause_s.append(pause_s)
        seen.lost_s.append(lost_s)
        seen.written_s.append(written_s)
        seen.extra_bytes.append(extra_bytes)

    def fork(self, seen: SnapshotSamples) -> None:
        """Write from a forked child."""
        ended: list[float] = []
        began_s = time.perf_counter()
        if (child := os.fork()) == 0:
            try:
                write_parts(self.path, [self.state])
            finally:
                os._exit(0)
        pause_s = time.perf_counter() - began_s
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt

        def wait() -> None:
            os.waitpid(child, 0)
            ended.append(time.perf_counter() - began_s)

        waiter = threading.Thread(target=wait)
        waiter.start()
        lost_s = pause_s + self.until(lambda: bool(ended))
        waiter.join()
        copied = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        self.note(seen, pause_s, lost_s, ended[0], copied * os.sysconf("SC_PAGE_SIZE"))


def main(size_bytes: int, dirty_share: float, count: int, folder: str) -> None:
    """Take `count` snapshots of each way; print their figures as JSON."""
    job = Job(size_bytes, dirty_share, Path(folder) / "snapshot")
    seen = {way: SnapshotSamples() for way in WAYS}
    ways: dict[str, Callable[[SnapshotSamples], None]] = {
        "stop": job.stop,
        "copy": job.copy,
        "fork": job.fork,
    }
    for round_number in range(count + 1):
        for way, take in ways.items():
            job.rest()
            take(seen[way] if round_number else SnapshotSamples())  # the first round touches files and memory
    print(json.dumps({way: figures.figures() for way, figures in seen.items()}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
