"""The whole run so far: the time line's bars and spans, the queue's curve, and the facts shown in words.

It follows the head of the run only; `campus_state` shows a moment. Everything is bounded: of more than MAX_BARS the
oldest are left out. The curve is thinned where it has more than MAX_POINTS points (the highest of each pair stays).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import takewhile
from typing import Any

from controller.core.model import facts as f
from experiments.dashboard.campus_state import Row
from experiments.results.history import OVER, end_of_attempt, turn_of_host
from experiments.results.narration import DETAILS

MAX_BARS, MAX_POINTS = 20_000, 4_000
# facts that are not shown: they come and go with each checkpoint, or are counters
ROUTINE: tuple[type[f.Fact], ...] = (f.EgressMeasured, *(kind for kind in DETAILS if kind is not f.CheckpointPlanned))


class Strip:
    """Rows by key, in the order of their latest change; of more than MAX_BARS those that changed longest ago are dropped."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, Row]] = {}  # key -> (version of its latest change, row)

    def get(self, key: str) -> Row | None:
        """Return the row, if there is one."""
        return self._rows.get(key, (0, None))[1]

    def put(self, version: int, key: str, **values: Any) -> None:
        """Set some values of a row, which may be new."""
        self._rows[key] = version, self._rows.pop(key, (0, {}))[1] | values
        if len(self._rows) > MAX_BARS:
            del self._rows[next(iter(self._rows))]

    def since(self, version: int) -> dict[str, Row]:
        """Return the rows that changed since a version."""
        changed = takewhile(lambda each: each[1][0] > version, reversed(self._rows.items()))
        return {key: row for key, (_, row) in changed}


class EventLog:
    """Log of a run: `add` each fact in order, with the version and the queue of the head picture after it."""

    def __init__(self) -> None:
        self.bars, self.spans = Strip(), Strip()
        self.curve: list[tuple[float, int, float | None]] = []  # (s, jobs that wait, level r), at each change
        self._curve_version = 0
        self.numbers, self.times_s = array("Q"), array("d")  # of the facts that are shown
        self._colours = 0
        self._colour: dict[str, int] = {}
        self._open: dict[tuple[str, str], str] = {}  # (host, kind) -> key of its open span

    def add(self, version: int, number: int, at_s: float, fact: f.AnyFact, length: int, level: float | None) -> None:
        """Add a fact."""
        if not isinstance(fact, ROUTINE):
            self.numbers.append(number)
            self.times_s.append(at_s)
        self._draw(version, at_s, length, level)
        match fact:
            case f.JobSubmitted(job=job):
                if job not in self._colour:
                    self._colour[job] = self._colours % 8
                    self._colours += 1
            case f.JobDispatched(job=job, attempt=attempt, host=host):
                begun = {"from_s": at_s, "run_s": None, "to_s": None, "how": "", "colour": self._colour.get(job, 0)}
                self.bars.put(version, f"{job}#{attempt}", job=job, attempt=attempt, host=host, **begun)
            case f.JobRunning(job=job, attempt=attempt) if self.bars.get(f"{job}#{attempt}"):
                self.bars.put(version, f"{job}#{attempt}", run_s=at_s)
        if turn := turn_of_host(fact):
            host, ended, kind, _ = turn
            for each in ended:
                if (key := self._open.pop((host, each), "")) and self.spans.get(key):
                    self.spans.put(version, key, to_s=at_s)
            if kind and (host, kind) not in self._open:
                key = self._open[host, kind] = f"{host} {kind} {at_s:.6f}"
                self.spans.put(version, key, host=host, kind=kind, from_s=at_s, to_s=None)
        if (ending := end_of_attempt(fact)) is not None:
            job, attempt, how = ending
            key = f"{job}#{attempt}"
            known = self.bars.get(key)
            if known is not None and known["to_s"] is None:
                self.bars.put(version, key, to_s=at_s, how=how)
            if how in OVER:
                self._colour.pop(job, None)

    def _draw(self, version: int, at_s: float, length: int, level: float | None) -> None:
        if self.curve and self.curve[-1][1:] == (length, level):
            return
        self.curve.append((at_s, length, level))
        self._curve_version = version
        if len(self.curve) > MAX_POINTS:
            pairs = zip(self.curve[::2], self.curve[1::2], strict=False)
            self.curve = [max(pair, key=lambda point: point[1]) for pair in pairs] + self.curve[-1:]

    def since(self, version: int) -> Row:
        """Return changes of the time line since a version; 0: all."""
        told: Row = {"bars": self.bars.since(version), "spans": self.spans.since(version)}
        return told | ({"curve": self.curve} if self._curve_version > version else {})

    def told_until(self, at_s: float, most: int) -> list[int]:
        """Return the numbers of the last facts shown, up to a time, in order."""
        end = bisect_right(self.times_s, at_s)
        return self.numbers[max(0, end - most) : end].tolist()

    def told_after(self, number: int, most: int) -> list[int]:
        """Return the numbers of the last facts shown, beyond a number."""
        return self.numbers[max(bisect_right(self.numbers, number), len(self.numbers) - most) :].tolist()
