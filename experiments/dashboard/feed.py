"""Feed of a source: the head of the run, its event log, and the picture of any moment before.

One task reads new facts and folds them into the head, a few thousand at a time, so that the loop stays free. Readers
keep a `Cursor` of what they have seen, and receive the picture whole, and of time line and story what is new. So a slow
reader costs nothing and is updated less often, without a backlog.

A moment of the past is the last keyframe before it and the facts since.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable
from math import inf
from typing import Any, NamedTuple

import msgspec
import trio

from controller.persistence.journal import DAMAGED
from experiments.dashboard.campus_state import CampusState, Row
from experiments.dashboard.event_log import EventLog
from experiments.dashboard.sources import EventsFile, HeartbeatRates, JournalSource
from experiments.results.link_rates import RoutesThen
from experiments.results.narration import describe, notable, particulars
from topologies.errors import TestbedError

POLL_S = 0.05  # between two looks at a journal
USE_S = 0.5  # between two looks at what agents count
PULSE_S = 1.0  # a reader is told at least so often, that it knows the clock and the connection
FRAME_S = 0.1  # between two pictures for one reader
READ = 2000  # facts at a time
KEYFRAMES, FIRST_SPACING = 256, 500  # kept; facts between two of them, at first
LINES = 200  # in one answer, at most
FRAME_FACTS = 4000  # of a replay that is played: time goes slower where a frame has more facts than these
BAD = {"HostLost", "JobStopped", "WorkLost", "JobFailed", "MigrationDegraded", "CheckpointRefused"}
GOOD = {"HostReturned", "JobFinished", "WorkTakenUp", "HostJoined"}
MOVES = {"MigrationAdmitted", "MigrationFinished", "JobRedirected"}
DECIDED = {  # by P1, P2, P3 or the queue
    *("JobQueued", "JobRedirected", "JobDispatched", "JobWaits"),
    *("CheckpointPlanned", "MigrationAdmitted", "MigrationDegraded"),
}


class Cursor(NamedTuple):
    """The position of a reader: the version of the head, and the last fact."""

    version: int = 0
    number: int = 0


class Feed:
    """A feed: `run` in a task; then the other methods may be called. `ended` returns whether the campus is gone."""

    def __init__(self, source: JournalSource | EventsFile, ended: Callable[[], bool] = lambda: True) -> None:
        self.source, self._ended = source, ended
        self._routes = RoutesThen(source.campus)
        self.head, self.event_log = CampusState(source.campus, self._routes.history), EventLog()
        self.loaded = False  # all that was there at the beginning has been read
        self.over = False  # nothing more will come
        self.broken = ""  # why the source could not be read on
        self._keyframes = [(-inf, self.head.copy())]  # (s, picture after a fact)
        self._spacing = FIRST_SPACING
        self._meter = HeartbeatRates()
        self._news = trio.Event()

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
            if found:
                self._publish()
            if len(found) == READ:
                await trio.lowlevel.checkpoint()
                continue
            if not self.loaded or (ended and not found):
                self.loaded = True
                self.over = ended and not found
                self._publish()
            if self.over:
                return
            if self.live and trio.current_time() >= use_s:
                use_s = trio.current_time() + USE_S
                self._count()
            await trio.sleep(POLL_S)

    def _add(self, number: int, at_s: float, fact: Any) -> None:
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
            return  # told at the next look at the facts, if it is not over
        for host, at_s, beat in reports:
            self.head.reported(*self._meter.take(host, at_s, beat))
        if reports:
            self._publish()

    def _publish(self) -> None:
        self._news.set()
        self._news = trio.Event()

    # ------------------------------------------------------------ reading

    async def news(self, cursor: Cursor) -> None:
        """Return when there is more than the cursor has seen, though not before the next frame, or after a pulse."""
        await trio.sleep(FRAME_S)
        if cursor.version == self.head.version:
            with trio.move_on_after(PULSE_S):
                await self._news.wait()

    def delta(self, cursor: Cursor) -> tuple[Cursor, bytes]:
        """Return what a reader lacks, as JSON, and its cursor after that; only the clock, if it lacks nothing."""
        told: Row = {"now_s": self.now_s} | self.state()
        if cursor.version < self.head.version:
            told |= self.head.picture() | self.event_log.since(cursor.version)
            told["story"] = self._told(self.event_log.told_after(cursor.number, LINES))
        return Cursor(self.head.version, self.head.number), msgspec.json.encode(told)

    def state(self) -> Row:
        """Return whether the run is loaded and over, and the error of its source."""
        return {"loaded": self.loaded, "over": self.over, "broken": self.broken}

    async def at(self, at_s: float) -> CampusState:
        """Return the picture at a time."""
        place = bisect_right(self._keyframes, at_s, key=lambda frame: frame[0]) - 1
        picture = self._keyframes[max(0, place)][1].copy()
        await self._forward(picture, at_s, inf)
        picture.at_s = at_s
        return picture

    async def _forward(self, picture: CampusState, until_s: float, most: float) -> None:
        """Fold the facts up to a time into a picture, at most so many."""
        left = most
        while left > 0:
            found = self.source.facts(picture.number + 1, int(min(READ, left)))
            for number, at_s, fact in found:
                if at_s > until_s:
                    return
                picture.apply(number, at_s, fact)
            left -= len(found)
            if len(found) < READ:
                return
            await trio.lowlevel.checkpoint()

    async def play(self, from_s: float, speed: float) -> AsyncIterator[bytes]:
        """Yield pictures from a time on, until the end, each with the lines of the story since the one before."""
        picture, story = await self.at(from_s), self.lines_until(from_s)
        next_s = trio.current_time()
        while True:
            over = picture.at_s >= self.head.at_s
            yield msgspec.json.encode(picture.picture() | {"story": story, "over": over})
            if over:
                return
            told_s = picture.at_s
            next_s = max(next_s + FRAME_S, trio.current_time())
            await trio.sleep_until(next_s)
            aim_s, number = min(told_s + speed * FRAME_S, self.head.at_s), picture.number
            await self._forward(picture, aim_s, FRAME_FACTS)
            if picture.number - number < FRAME_FACTS:
                picture.at_s = aim_s
            story = self.lines_until(picture.at_s, told_s)

    def lines_until(self, at_s: float, after_s: float = -inf) -> list[Row]:
        """Return the last lines of the story, up to a time."""
        lines = self._told(self.event_log.told_until(at_s, LINES))
        return [line for line in lines if line["at_s"] > after_s]

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
        "tone": "bad" if name in BAD else "good" if name in GOOD else "calm" if name in MOVES else "",
        "notable": notable(fact) and name != "CheckpointPlanned",
        "decided": name in DECIDED,
        "job": getattr(fact, "job", ""),
        "host": getattr(fact, "host", "") or getattr(fact, "source", ""),
    }
