"""Feed of a source: the head of the run, its event log, and the picture of any moment before.

One task reads new facts and folds them into the head, a few thousand at a time, so that the loop stays free. Readers
send what they have seen and get the rest: the picture whole, and of time line and story what is new. So a slow reader
costs nothing and is updated less often, without a backlog.

A moment of the past is the last keyframe before it and the facts since.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

import trio

from controller.core.model.facts import NameChanged
from controller.persistence.journal import DAMAGED
from experiments.dashboard.campus_state import CampusState, Row
from experiments.dashboard.event_log import EventLog
from experiments.dashboard.sources import EventsFile, HeartbeatRates, JournalSource
from experiments.results.link_rates import RoutesThen
from experiments.results.narration import TONES, describe, notable, particulars
from topologies.errors import TestbedError

POLL_S = 0.05  # between two looks at a journal
USE_S = 0.5  # between two looks at what agents count
READ = 2000  # facts at a time
KEYFRAMES, FIRST_SPACING = 256, 500  # kept; facts between two of them, at first
LINES = 200  # in one answer, at most
DECIDED = {  # by P1, P2, P3 or the queue
    *("JobQueued", "JobRedirected", "JobDispatched", "JobWaits"),
    *("CheckpointPlanned", "MigrationAdmitted", "MigrationDegraded"),
}


class Feed:
    """A feed: `run` in a task; then the other methods may be called. `ended` returns whether the campus is gone."""

    def __init__(self, source: JournalSource | EventsFile, ended: Callable[[], bool] = lambda: True) -> None:
        self.source, self._ended = source, ended
        self._routes = RoutesThen(source.campus)
        self.head, self.event_log = CampusState(source.campus, self._routes.history), EventLog()
        self.loaded = False  # all that was there at the beginning has been read
        self.over = False  # nothing more will come
        self.broken = ""  # why the source could not be read on
        self.revoked: dict[str, float] = {}  # names, and when
        self._keyframes = [(-inf, self.head.copy())]  # (s, picture after a fact)
        self._spacing = FIRST_SPACING
        self._meter = HeartbeatRates()

    @property
    def live(self) -> bool:
        """True if it follows a campus that stands."""
        return isinstance(self.source, JournalSource) and self.source.world == "live" and not self.over

    @property
    def now_s(self) -> float:
        """The time of the run now; of one that is over, its last fact's."""
        clock_s = self.source.now_s() if self.live and isinstance(self.source, JournalSource) else None
        return max(self.head.at_s, clock_s or 0.0)

    # ------------------------------------------------------------ following

    async def run(self) -> None:
        """Read on until the run is over; `broken` is set when the source can no longer be read."""
        use_s = trio.current_time()
        while True:
            ended = self._ended()
            try:
                found = self.source.facts(self.head.number + 1, READ)
            except (*DAMAGED, OSError) as error:
                self.broken, ended, found = f"{self.source.path}: {error}", True, []
            except TestbedError as error:  # it names file and line
                self.broken, ended, found = str(error), True, []
            for number, at_s, fact in found:
                self._add(number, at_s, fact)
            if len(found) == READ:
                await trio.lowlevel.checkpoint()
                continue
            if not self.loaded or (ended and not found):
                self.loaded = True
                self.over = ended and not found
            if self.over:
                return
            if self.live and trio.current_time() >= use_s:
                use_s = trio.current_time() + USE_S
                self._count()
            await trio.sleep(POLL_S)

    def _add(self, number: int, at_s: float, fact: Any) -> None:
        if isinstance(fact, NameChanged) and fact.change == "revoked":
            self.revoked[fact.name] = at_s
        head = self.head
        self._routes.note(at_s, fact)
        head.apply(number, at_s, fact)
        length = len(head.head) + len(head.queue)
        self.event_log.add(head.version, number, at_s, fact, length, head.level)
        if number - self._keyframes[-1][1].number >= self._spacing:
            self._keyframes.append((at_s, head.copy()))
            if len(self._keyframes) > KEYFRAMES:
                self._keyframes = self._keyframes[::2]
                self._spacing *= 2

    def _count(self) -> None:
        assert isinstance(self.source, JournalSource)
        try:
            reports = self.source.reports(READ)
        except DAMAGED:
            return  # noticed at the next look at the facts, if it is not over
        for host, at_s, beat in reports:
            self.head.reported(*self._meter.take(host, at_s, beat))

    # ------------------------------------------------------------ reading

    def since(self, version: int, number: int) -> Row:
        """Return what a reader of this version and fact lacks: the picture whole, time line and story where they are new."""
        head = self.head
        told: Row = {"loaded": self.loaded, "over": self.over, "broken": self.broken, "now_s": self.now_s}
        if version < head.version:
            told |= head.picture() | self.event_log.since(version)
            told["story"] = self._told(self.event_log.told_after(number, LINES))
        return told | {"version": head.version, "number": head.number}

    async def at(self, at_s: float) -> CampusState:
        """Return the picture at a time."""
        place = bisect_right(self._keyframes, at_s, key=lambda frame: frame[0]) - 1
        picture = self._keyframes[max(0, place)][1].copy()
        while True:
            found = [timed for timed in self.source.facts(picture.number + 1, READ) if timed[1] <= at_s]
            for timed in found:
                picture.apply(*timed)
            if len(found) < READ:
                break
            await trio.lowlevel.checkpoint()
        picture.at_s = at_s
        return picture

    def lines_until(self, at_s: float) -> list[Row]:
        """Return the last lines of the story, up to a time."""
        return self._told(self.event_log.told_until(at_s, LINES))

    def _told(self, numbers: Iterable[int]) -> list[Row]:
        return [_line(*timed) for number in numbers for timed in self.source.facts(number, 1)]

    def fact(self, number: int) -> Row:
        """Return a fact with all that it carries, in words; nothing, if there is none of this number."""
        return next(
            (
                _line(number, at_s, fact) | {"kind": type(fact).__name__, "fields": particulars(fact)}
                for _, at_s, fact in self.source.facts(number, 1)
            ),
            {},
        )


def _line(number: int, at_s: float, fact: Any) -> Row:
    """Return a fact in words, as the page lists it."""
    name = type(fact).__name__
    return {
        "n": number,
        "at_s": at_s,
        "text": describe(fact),
        "tone": TONES.get(type(fact), ""),
        "notable": notable(fact),
        "decided": name in DECIDED,
        "job": getattr(fact, "job", ""),
        "host": getattr(fact, "host", "") or getattr(fact, "source", ""),
    }
