"""The delay line's process: started, given what each cable is to do, asked what it does, read."""

from __future__ import annotations

import logging
import mmap
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add, sub
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bpf.layout import DELAY_BUCKETS
from bpf.observer import Histogram
from testbed.emulation.description.shaping import LinkShape
from testbed.emulation.kernel.delay_line.compile import compiled
from testbed.emulation.kernel.helper import Helper
from testbed.emulation.safety.ledger import MARK, Ledger
from testbed.errors import KernelMismatch, SetupError

log = logging.getLogger(__name__)

AGAIN_S = 0.1  # how often it is looked whether the process has died
MAX_CABLES = 16384  # the machine's limit of interfaces is lower
ANSWER_LIMIT_S = 10.0  # it answers within some 10 us; this is for a machine that is stopped
_BYTES = 8 * (7 + DELAY_BUCKETS)  # of struct statistics of delay_line.c
ANY_CABLE = "any cable"
# of a direction's waiting frames: twice what its rate puts into the delay, and never less than this
MIN_LIMIT_BYTES = 4 << 20


class LineStatistics(NamedTuple):
    """Counters of the delay line for a direction of a cable: `struct statistics` of delay_line.c."""

    frames: int  # sent on; super-packets count as one
    late: int  # of those, sent later than due by more than a tenth of the delay
    lost: int  # segments that the cable was to lose
    overflown: int  # frames lost because more waited than the limit
    unheard: int  # frames lost because the process did not read in time (of ANY_CABLE only)
    refused: int  # frames that the kernel would not send, as when an end is down
    waiting_bytes: int
    lateness: Histogram  # of the frames sent on

    @property
    def wrong(self) -> int:
        """Frames that the cable did not treat as it should have."""
        return self.late + self.overflown + self.unheard

    @property
    def seen(self) -> int:
        """Frames that it sent on, or should have."""
        return self.frames + self.overflown + self.unheard

    def since(self, earlier: LineStatistics | None) -> LineStatistics:
        """Return the difference between two readings; None is the beginning."""
        return LineStatistics(*map(sub, self, earlier)) if earlier else self


def together(counted: Iterable[LineStatistics]) -> LineStatistics:
    """Return the sums of counters of several directions."""
    nothing = LineStatistics(0, 0, 0, 0, 0, 0, 0, Histogram(np.zeros(DELAY_BUCKETS, np.uint64)))
    return reduce(lambda a, b: LineStatistics(*map(add, a, b)), counted, nothing)


@dataclass(frozen=True, slots=True)
class _Settings:
    """Settings of a direction of a cable, in the units of the process."""

    delay_ns: int
    jitter_ns: int
    loss: int  # share of 2**32
    limit_bytes: int

    @classmethod
    def of(cls, shape: LinkShape) -> _Settings:
        held_bytes = shape.rate_bytes_per_s * (shape.delay_s + shape.jitter_s)
        return cls(
            round(shape.delay_s * 1e9),
            round(shape.jitter_s * 1e9),
            shape.loss_fraction,
            max(MIN_LIMIT_BYTES, round(2 * held_bytes)),
        )

    def __str__(self) -> str:
        return f"{self.delay_ns} {self.jitter_ns} {self.loss} {self.limit_bytes}"


def _parent() -> int:
    """Return the process that the delay line is to end with; 0 outside the main thread.

    A process dies with the *thread* that forked it. Without, the end of its input, which the kernel closes with this process,
    ends it.
    """
    return os.getpid() if threading.current_thread() is threading.main_thread() else 0


class DelayLine:
    """The process, in a network namespace of its own. `add` cables, `set` what each direction does.

    The namespace lasts as long as this object. A process that dies is started again in it, and given all cables as they were.
    """

    def __init__(self, run_dir: Path, campus_id: str) -> None:
        self.restarts = 0
        self._file = run_dir / "delay_line"
        self._campus_id = campus_id
        self._process: Helper | None = None
        self._namespace = -1  # a descriptor: keeps it where no process is left in it
        self._asking = threading.RLock()
        self._closing = threading.Event()
        self._cables: dict[str, str] = {}  # what each is called, in the process's order -> its two interfaces
        self._settings: dict[tuple[str, int], str] = {}
        self._memory: mmap.mmap | bytes = b""

    @property
    def pid(self) -> int | None:
        """The process that holds its namespace, while it runs."""
        return self._process.pid if self._process and self._process.is_running else None

    def start(self, ledger: Ledger) -> int:
        """Compile it if need be, start it if it does not run, and return its pid. SetupError: it cannot."""
        if self._process is not None:
            if not self._process.is_running:
                raise self._process.ended()
            return self._process.pid
        process = self._launch(ledger, self._file, MAX_CABLES, _parent())
        self._namespace = os.open(f"/proc/{process.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        with self._file.open("rb") as file:
            size_bytes = (1 + 2 * MAX_CABLES) * _BYTES
            self._memory = mmap.mmap(file.fileno(), size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
        threading.Thread(target=self._look_after, args=(ledger,), name="delay line", daemon=True).start()
        return process.pid

    def _launch(self, ledger: Ledger, *arguments: object) -> Helper:
        process = Helper("the delay line", [str(compiled()), *map(str, arguments)], {MARK: self._campus_id})
        ledger.record(ledger.process(process.pid, "delay line"))
        try:
            process.read_line(ANSWER_LIMIT_S)
        except SetupError:
            process.close()
            raise
        self._process = process
        return process

    def _look_after(self, ledger: Ledger) -> None:
        """Start the process again when it has died."""
        while not self._closing.wait(AGAIN_S):
            with self._asking:
                if self._process is None or self._process.is_running:
                    continue
                dead, self.restarts = self._process, self.restarts + 1
                try:
                    log.warning("%s: it is started again", dead.ended())
                    self._launch(ledger, self._file, MAX_CABLES, 0, f"/proc/{os.getpid()}/fd/{self._namespace}")
                    dead.close()
                    for number, interfaces in enumerate(self._cables.values()):
                        self._ask(f"cable {number} {interfaces}")
                    for (name, side), wanted in self._settings.items():
                        self._ask(f"set {self._number(name)} {side} {wanted}")
                except (SetupError, OSError) as error:  # no process or no file can be had: tried again
                    log.warning("the delay line cannot be started again yet: %s", error)

    def add(self, name: str, ifindex_a: int, ifindex_b: int) -> None:
        """Take what comes in at one of its namespace's interfaces to the other. SetupError: a socket was refused."""
        interfaces = f"{ifindex_a} {ifindex_b}"
        answer = self._ask(f"cable {len(self._cables)} {interfaces}")
        if answer != "ok":
            raise SetupError(f"delay line of {name}: {answer}")
        self._cables[name] = interfaces

    def set(self, name: str, side: int, shape: LinkShape) -> None:
        """Set delay, jitter and loss of a direction (side 0: leaving the cable's end a).

        KernelMismatch if the process disagrees.
        """
        wanted = str(_Settings.of(shape))
        self._settings[name, side] = wanted
        self._compare(name, side, wanted, self._ask(f"set {self._number(name)} {side} {wanted}"))

    def check(self, name: str, side: int, shape: LinkShape) -> None:
        """Raise KernelMismatch unless the direction has the shape."""
        found = self._ask(f"get {self._number(name)} {side}")
        self._compare(name, side, str(_Settings.of(shape)), found)

    def _number(self, name: str) -> int:
        return list(self._cables).index(name)

    def _compare(self, name: str, side: int, wanted: str, found: str) -> None:
        if found != wanted:
            raise KernelMismatch(f"delay line of {name}, side {side}", wanted, found)

    def statistics(self) -> dict[tuple[str, int], LineStatistics]:
        """Return (cable, side) -> its counters; readable after the end, too.

        Frames of no known cable are under (ANY_CABLE, 0).
        """
        if not self._memory:
            return {}
        names = [(ANY_CABLE, 0), *((name, side) for name in self._cables for side in (0, 1))]
        words = np.frombuffer(self._memory[: len(names) * _BYTES], np.uint64).reshape(len(names), -1)
        counters = len(LineStatistics._fields) - 1
        return {
            name: LineStatistics._make([*row[:counters].tolist(), Histogram(row[counters:])])
            for name, row in zip(names, words, strict=True)
        }

    def close(self) -> None:
        """End the process; safe to repeat. Its statistics stay readable."""
        if self._process is None:
            return
        self._closing.set()
        with self._asking:
            self._process.close()
            self._process = None
            if self._namespace >= 0:
                os.close(self._namespace)
        if isinstance(self._memory, mmap.mmap):
            shared, self._memory = self._memory, self._memory[: (1 + 2 * len(self._cables)) * _BYTES]
            shared.close()

    def _ask(self, line: str) -> str:
        with self._asking:
            if self._process is None:
                raise SetupError("the delay line does not run")
            self._process.write(f"{line}\n".encode())
            return self._process.read_line(ANSWER_LIMIT_S)
