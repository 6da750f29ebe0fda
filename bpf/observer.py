"""Counts of the kernel in network namespaces of a campus.

They are of segments sent again, packets dropped by reason, round trips, and waiting times of tasks. The programs
(`src/observe.bpf.c`) run while an `Observer` is open, and are gone with its process.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bpf.btf import drop_reasons
from bpf.errors import BpfError
from bpf.layout import DELAY_BUCKETS, DROP_REASONS, ObservedStruct
from bpf.library import check, libbpf
from bpf.memory import KernelMap, MappedMap
from bpf.objects import loaded, map_fd, program_fd

PROGRAMS = ("on_retransmit", "on_drop", "on_segment", "on_wakeup", "on_birth", "on_switch")
QUEUES = ("qdisc", "fq ", "cpu backlog", "full ring")  # beginnings of the reasons that mean: a queue was full
BEYOND = "of a subsystem"  # reasons that the kernel numbers above all others
_BYTES = ctypes.sizeof(ObservedStruct)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Frequencies of delays: `counts` of four buckets an octave of microseconds (`src/observe.h`)."""

    counts: NDArray[np.uint64]

    @property
    def total(self) -> int:
        """Delays seen."""
        return int(self.counts.sum())

    def quantile_s(self, share: float) -> float:
        """Return the delay that `share` of those seen do not exceed, in seconds; 0 of none.

        It is the upper end of its bucket, at most a quarter too large.
        """
        seen = np.cumsum(self.counts)
        if not seen[-1]:
            return 0.0
        return bucket_end_us(int(np.searchsorted(seen, max(1, math.ceil(share * int(seen[-1])))))) / 1e6

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(self.counts + other.counts)

    def __sub__(self, earlier: Histogram) -> Histogram:
        return Histogram(self.counts - earlier.counts)


@dataclass(frozen=True, slots=True)
class Observation:
    """Counts of one network namespace, or of several together: `words` are those of `struct observed`."""

    words: NDArray[np.uint64]

    @property
    def retransmitted(self) -> int:
        """TCP segments that were sent again."""
        return int(self.words[0])

    @property
    def dropped(self) -> dict[str, int]:
        """Packets by the kernel's reason, in words ("qdisc drop"), most first."""
        counts, names = self.words[1 : 1 + DROP_REASONS], drop_reasons()
        found = {
            BEYOND if number == DROP_REASONS - 1 else names.get(number, f"reason {number}"): int(counts[number])
            for number in map(int, np.flatnonzero(counts))
        }
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @property
    def queue_drops(self) -> int:
        """Packets dropped because a queue was full."""
        return sum(count for reason, count in self.dropped.items() if reason.startswith(QUEUES))

    @property
    def round_trip(self) -> Histogram:
        """TCP's smoothed round trip, at each segment that arrived."""
        return Histogram(self.words[1 + DROP_REASONS :][:DELAY_BUCKETS])

    @property
    def run_delay(self) -> Histogram:
        """The time from a task's waking until a processor took it."""
        return Histogram(self.words[1 + DROP_REASONS + DELAY_BUCKETS :])

    def __add__(self, other: Observation) -> Observation:
        return Observation(self.words + other.words)

    def __sub__(self, earlier: Observation) -> Observation:
        """Return counts since `earlier`, an observation of the same namespace."""
        return Observation(self.words - earlier.words)


class Observer:
    """Observer of the named network namespaces from now until `close` (or as a context manager).

    `namespaces` has each one's inode (`inode_of`). BpfError if the kernel has no typed tracepoints, or not these: its
    first line names which.
    """

    def __init__(self, namespaces: Mapping[str, int]) -> None:
        self.names = tuple(namespaces)
        self._links: list[int] = []
        many = dict.fromkeys(("observe_namespaces", "observe_records"), len(namespaces))
        with loaded("observe", entries=many) as pointer:
            inodes = KernelMap(map_fd(pointer, "observe_namespaces"))
            try:
                for slot, inode in enumerate(namespaces.values()):
                    key, value = inode.to_bytes(4, "little"), slot.to_bytes(4, "little")
                    check(libbpf().bpf_map_update_elem(inodes.fd, key, value, 0), "name a namespace")
            finally:
                inodes.close()
            self._records = _Records(map_fd(pointer, "observe_records"), len(namespaces))
            try:
                for name in PROGRAMS:
                    program = program_fd(pointer, name)
                    try:
                        link = libbpf().bpf_raw_tracepoint_open(None, program)
                        self._links.append(check(link, f"attach {name} to its tracepoint"))
                    finally:
                        os.close(program)
            except BpfError:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> dict[str, Observation]:
        """Return counts of each namespace since the beginning. Each count is exact; they are not one instant."""
        words = np.frombuffer(self._records.u8[: _BYTES * len(self.names)], np.uint64).copy()
        return dict(zip(self.names, map(Observation, words.reshape(len(self.names), -1)), strict=True))

    def close(self) -> None:
        """Take the programs off; safe to repeat."""
        while self._links:
            os.close(self._links.pop())
        self._records.close()


class _Records(MappedMap):
    def __init__(self, fd: int, count: int) -> None:
        self.size_bytes = -(-_BYTES * count // mmap.PAGESIZE) * mmap.PAGESIZE
        super().__init__(fd)


def inode_of(process: int | str) -> int:
    """Return the inode of the network namespace in which a process is ("self": this one). OSError if it is gone."""
    return Path(f"/proc/{process}/ns/net").stat().st_ino


def bucket_end_us(bucket: int) -> int:
    """Return the largest delay that is counted in a bucket, in microseconds (`src/observe.h`)."""
    if bucket < 4:
        return bucket
    octave, quarter = divmod(bucket, 4)
    return ((5 + quarter) << (octave - 1)) - 1
