"""Feed of a source: the head of the run, its event log, and the picture of any moment before.

One task reads new facts and folds them into the head, a few thousand at a time, so that the loop stays free. Readers
keep a `Cursor`, the version that they have seen, and ask for changes since. So a slow reader costs nothing and is
updated less often, without a backlog. All readers at the same version get the same bytes, encoded once.

A moment of the past is the last keyframe before it and the facts since.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import msgspec
import trio

from controller.persistence.journal import DAMAGED
from experiments.dashboard.cache import DECIDED
from experiments.dashboard.campus_state import CampusState, Row
from experiments.dashboard.event_log import EventLog
from experiments.dashboard.sources import EventsFile, HeartbeatRates, JournalSource, Numbered
from experiments.results.narration import describe, notable
from topologies.errors import TestbedError

POLL_S = 0.05  # between two looks at a journal
USE_S = 0.5  # between two looks at what agents count
PULSE_S = 1.0  # a reader is told at least so often, that it knows the clock and the connection
READ = 2000  # facts at a time
KEYFRAMES, FIRST_SPACING = 256, 500  # kept; facts between two of them, at first
LINES = 200  # in one answer, at most
RECENT = 1000  # facts whose words may be asked for at once by all who follow
FRAME_S, FRAME_FACTS = (
    0.1,
    4000,
)  # of a replay that is played: time goes slower where a frame has more facts than these
BAD = {"HostLost", "JobStopped", "WorkLost", "JobFailed", "MigrationDegraded", "CheckpointRefused"}
GOOD = {"HostReturned", "JobFinished", "WorkTakenUp", "HostJoined"}
MOVES = {"MigrationAdmitted", "MigrationFinished", "JobRedirected"}


class Cursor(NamedTuple):
    """The position of a reader: the version of the head, and the last fact."""

    version: int = 0
    number: int = 0


@dataclass
class Keyframe:
    """The picture after a fact."""

    at_s: float
    picture: CampusState


class Feed:
    """A feed: `run` in a task; then the other methods may be called. `ended` returns whether the campus is gone."""

    def __init__(self, source: JournalSource | EventsFile, ended: Callable[[], bool] = lambda: True) -> None:
        self.source, self._ended = source, ended
        self.head, self.event_log = CampusState(source.campus), EventLog()
        self.loaded = False  # all that was there at the beginning has been read
        self.over = False  # nothing more will come
        self.broken = ""  # why the source could not be read on
        self._keyframes = [Keyframe(-inf, self.head.copy())]
        self._spacing = FIRST_SPACING
        self._recent: deque[Numbered] = deque(maxlen=RECENT)
        self._meter = HeartbeatRates()
        self._news = trio.Event()
        self._encoded: dict[Cursor, tuple[Cursor, bytes]] = {}

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
        head.apply(number, at_s, fact)
        length = len(head.head) + len(head.queue)
        self.event_log.add(head.version, number, at_s, fact, length, head.level)
        self._recent.append((number, at_s, fact))
        if number - self._keyframes[-1].picture.number >= self._spacing:
            self._keyframes.append(Keyframe(at_s, head.copy()))
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
        self._encoded.clear()
        self._news.set()
        self._news = trio.Event()

    # ------------------------------------------------------------ reading

    async def news(self, cursor: Cursor) -> None:
        """Return when there is more than the cursor has seen, or after a pulse."""
        if cursor.version == self.head.version:
            with trio.move_on_after(PULSE_S):
                await self._news.wait()

    def delta(self, cursor: Cursor) -> tuple[Cursor, bytes]:
        """Return the changes since the cursor, as JSON, and the cursor after them; all, if it has seen nothing or too little."""
        if cursor.version == self.head.version:  # a pulse
            return cursor, msgspec.json.encode({"now_s": self.now_s} | self.state())
        known = self._encoded.get(cursor)
        if known is None:
            head = self.head
            seen = Cursor() if cursor.version < head.knows_since else cursor
            told: Row = head.since(seen.version) | self.event_log.since(seen.version)
            told["story"] = self._told(self.event_log.told_after(seen.number, LINES))
            told |= {"anew": not seen.version, "now_s": self.now_s} | self.state()
            after = Cursor(head.version, head.number)
            known = self._encoded[cursor] = after, msgspec.json.encode(told)
        return known

    def state(self) -> Row:
        """Return whether the run is loaded and over, and the error of its source."""
        return {"loaded": self.loaded, "over": self.over, "broken": self.broken}

    async def at(self, at_s: float) -> CampusState:
        """Return the picture at a time."""
        place = bisect_right(self._keyframes, at_s, key=lambda frame: frame.at_s) - 1
        picture = self._keyframes[max(0, place)].picture.copy()
        await self._forward(picture, at_s, inf)
        if isinstance(self.source, JournalSource):
            meter = HeartbeatRates()
            with suppress(*DAMAGED):  # what agents counted then is not to be had
                for host, when_s, beat in self.source.reports_at(at_s):
                    picture.reported(*meter.take(host, when_s, beat))
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
        """Yield frames from a time on, until the end: what has changed since the frame before."""
        picture, version, told_s = await self.at(from_s), 0, from_s
        next_s = trio.current_time()
        while True:
            frame: Row = picture.since(version)
            frame["story"] = self._told(
                self.event_log.told_until(picture.at_s, LINES), after_s=told_s if version else -inf
            )
            yield msgspec.json.encode(frame | {"anew": not version, "over": picture.at_s >= self.head.at_s})
            if picture.at_s >= self.head.at_s:
                return
            version, told_s = picture.version, picture.at_s
            next_s = max(next_s + FRAME_S, trio.current_time())
            await trio.sleep_until(next_s)
            aim_s, number = min(told_s + speed * FRAME_S, self.head.at_s), picture.number
            await self._forward(picture, aim_s, FRAME_FACTS)
            if picture.number - number < FRAME_FACTS:
                picture.at_s = aim_s

    def lines_until(self, at_s: float, most: int) -> list[Row]:
        """Return the last lines of the story, up to a time."""
        return self._told(self.event_log.told_until(at_s, min(most, LINES)))

    def _told(self, numbers: Iterable[int], after_s: float = -inf) -> list[Row]:
        recent = {number: (at_s, fact) for number, at_s, fact in self._recent}
        lines = []
        for number in numbers:
            if number in recent:
                at_s, fact = recent[number]
            else:
                [(_, at_s, fact)] = self.source.facts(number, 1)
            if at_s > after_s:
                lines.append(line(number, at_s, fact))
        return lines


def line(number: int, at_s: float, fact: Any) -> Row:
    """Return a fact in words, as the page lists it."""
    name = type(fact).__name__
    return {
        "n": number,
        "at_s": at_s,
        "text": describe(fact),
        "tone": "bad" if name in BAD else "good" if name in GOOD else "calm" if name in MOVES else "",
        "notable": notable(fact) and name != "CheckpointPlanned",
        "why": isinstance(fact, DECIDED),
        "job": getattr(fact, "job", ""),
        "host": getattr(fact, "host", "") or getattr(fact, "source", ""),
    }
