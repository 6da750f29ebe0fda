"""What a snapshot costs the job that goes on: standing still for the write, a copy in memory, and fork(2), in one run.

A process holds a state of so many bytes and computes in steps, each of which rewrites a part of it, round and round, and then
leaves the processor alone. The three ways alternate, a snapshot of each in turn, since a machine's speed changes from second to
second; a step without a snapshot before each says what rewriting takes by itself:

    stop    the process writes its state to a file, and goes on
    copy    what agents do (`testbed.workloads.copying`): memory is taken by a thread while steps go on, the state is copied
            between two steps, a thread writes the copy
    fork    a child writes the state as it was; the parent goes on, and each page that it changes first is copied by the kernel

Of each: the *pause*, for which no step could be computed; what is *lost* in all: the pause, and how much longer the steps took
until the file was written (page faults, the other core's memory traffic, the interpreter); the time from the order until the
file is *written* (not synced: that is the store's, and the same for all); and the most *memory* held beside the state. A fork's
is what the parent's page faults had copied until the child ended.

What it does not show: more jobs than one on a machine.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from experiments.benchmarks.goals import JudgedFigure, in_ms
from experiments.benchmarks.results import write_result
from experiments.results.accounting import quantile
from testbed.errors import SetupError
from testbed.workloads.base import StateCopy, write_parts
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


def measure_snapshots(
    out: Path,
    sizes_mb: Sequence[int] = SIZES_MB,
    disk: Path | None = None,
    *,
    quick: bool = False,
) -> dict[str, Any]:
    """Runs the comparison, a process of its own for each size; writes `snapshots.json` into `out` and returns what it holds.

    `disk`: a directory on the disk to write to (default: the temporary directory). SetupError: too little room or memory.
    """
    rows = []
    with tempfile.TemporaryDirectory(dir=disk, prefix="reclaimnet-snapshots-") as folder:
        for size_mb in sizes_mb:
            size_bytes = size_mb * 1_000_000
            room = min(available_bytes() / 3.0, shutil.disk_usage(folder).free / 2.0)
            if size_bytes > room:
                raise SetupError(f"{size_bytes} bytes of state: memory and {folder} have room for {room:.0f}")
            count = SNAPSHOTS if size_mb == GOAL_MB else SNAPSHOTS_ELSE
            count = max(3, count // 10) if quick else count
            for dirty_share in DIRTY_SHARES:
                order = json.dumps([size_bytes, dirty_share, count, folder])
                played = subprocess.run(
                    [sys.executable, "-m", __name__, order], stdout=subprocess.PIPE, check=True, text=True
                )
                rows += [
                    {"size_mb": size_mb, "dirty_share": dirty_share, "way": way, **figures}
                    for way, figures in json.loads(played.stdout).items()
                ]
    judged = [row["pause_p99_s"] for row in rows if row["size_mb"] == GOAL_MB and row["way"] == "copy"]
    result = {
        "step_s": STEP_S,
        "rows": rows,
        "goal": {"size_mb": GOAL_MB, "pause_p99_s": GOAL_S, "met": max(judged) <= GOAL_S if judged else None},
        "load": os.getloadavg()[0],
        "cpus": os.cpu_count(),
    }
    write_result(out / "snapshots.json", result)
    return result


def judged_figures(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    """The figures of `result`, as it stands in the JSON, that have a goal."""
    goal = result["goal"]
    found = [row["pause_p99_s"] for row in result["rows"] if row["way"] == "copy"]
    what = f"pause for a snapshot of {goal['size_mb']} MB, copied in memory, p99"
    yield JudgedFigure(what, f"<= {in_ms(goal['pause_p99_s'])}", in_ms(max(found)), goal["met"])


def snapshots_table(result: Mapping[str, Any]) -> Table:
    """A row each size, share that a step rewrites, and way."""
    load, cpus = result["load"], result["cpus"]
    table = Table(
        "state",
        "rewritten a step",
        "way",
        "pause p50",
        "pause p99",
        "lost a snapshot",
        "until written",
        "memory beside",
        title=f"steps of {result['step_s']:g} s; load {load:.1f} on {cpus} cores",
    )
    before = None
    for row in result["rows"]:
        if before not in (None, (row["size_mb"], row["dirty_share"])):
            table.add_section()
        before = row["size_mb"], row["dirty_share"]
        table.add_row(
            f"{row['size_mb']} MB",
            f"{row['dirty_share']:.0%}",
            row["way"],
            *(f"{1e3 * row[key]:.1f} ms" for key in ("pause_p50_s", "pause_p99_s", "lost_s", "written_s")),
            f"{row['extra_bytes'] / 1e6:.0f} MB",
        )
    goal = result["goal"]
    if goal["met"] is not None:
        verdict = "met" if goal["met"] else "not met"
        table.caption = f"goal, {goal['pause_p99_s'] * 1e3:g} ms of {goal['size_mb']} MB by copy: {verdict}"
    return table


# ---------------------------------------------------------------- in a process of its own


@dataclass
class SnapshotSamples:
    """Of one way, a value a snapshot."""

    pause_s: list[float] = field(default_factory=list)
    lost_s: list[float] = field(default_factory=list)
    written_s: list[float] = field(default_factory=list)
    extra_bytes: list[int] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Quantiles of the pause, medians of the rest, the most memory."""
        return {
            "snapshots": len(self.pause_s),
            "pause_p50_s": quantile(self.pause_s, 0.5) or 0.0,
            "pause_p99_s": quantile(self.pause_s, 0.99) or 0.0,
            "lost_s": statistics.median(self.lost_s),
            "written_s": statistics.median(self.written_s),
            "extra_bytes": max(self.extra_bytes),
        }


class SteppingJob(ABC):
    """Steps, and snapshots beside them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._alone: list[float] = []

    @abstractmethod
    def step(self) -> float:
        """One step; how long its computing took."""

    @abstractmethod
    def write(self) -> None:
        """The state to `path`."""

    @abstractmethod
    def state_copy(self) -> StateCopy:
        """How agents' jobs copy such a state."""

    @property
    def step_s(self) -> float:
        """What computing takes by itself, the median."""
        return statistics.median(self._alone)

    def rest(self) -> None:
        """A step without a snapshot: what it takes by itself."""
        self._alone.append(self.step())

    def until(self, over: Callable[[], bool]) -> float:
        """Steps until it is so; how much computing took in them beyond what it takes by itself."""
        alone_s, beyond_s = self.step_s, 0.0
        while not over():
            beyond_s += self.step() - alone_s
        return beyond_s

    def stop(self, seen: SnapshotSamples) -> None:
        """Stand still for the write."""
        began_s = time.perf_counter()
        self.write()
        took_s = time.perf_counter() - began_s
        self.note(seen, took_s, took_s, took_s, 0)

    def copy(self, seen: SnapshotSamples) -> None:
        """Copy as an agent's job does."""
        told: list[tuple[SnapshotTaken | SnapshotFailed, float]] = []
        began_s = time.perf_counter()
        order, state = Snapshot(0, str(self.path), stop=False), self.state_copy()
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
        """What a snapshot cost; its file goes."""
        self.path.unlink()
        seen.pause_s.append(pause_s)
        seen.lost_s.append(lost_s)
        seen.written_s.append(written_s)
        seen.extra_bytes.append(extra_bytes)


class _Job(SteppingJob):
    """A state and steps that rewrite a part of it."""

    def __init__(self, size_bytes: int, dirty_share: float, path: Path) -> None:
        super().__init__(path)
        self.state = bytearray(os.urandom(1 << 20) * (size_bytes // (1 << 20) + 1))[:size_bytes]
        self._fresh = os.urandom(BLOCK_BYTES)
        self._blocks = max(1, size_bytes // BLOCK_BYTES)
        self._dirty, self._next = max(1, round(dirty_share * self._blocks)), 0

    def step(self) -> float:
        """A part of the state rewritten, then nothing, as while a GPU computes."""
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

    def write(self) -> None:
        """As it lies there."""
        write_parts(self.path, [self.state])

    def state_copy(self) -> PartsCopy:
        """In memory."""
        return PartsCopy(lambda: [self.state], len(self.state))

    def fork(self, seen: SnapshotSamples) -> None:
        """Write as a child of it would."""
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


def main(order: str) -> None:
    """Plays what `measure_snapshots` orders; the figures of each way go to standard output."""
    size_bytes, dirty_share, count, folder = json.loads(order)
    job = _Job(size_bytes, dirty_share, Path(folder) / "snapshot")
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
    main(sys.argv[1])
