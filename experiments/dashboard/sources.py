"""Sources of facts: a coordinator's journal, in use or not, or a file of facts.

Both are read, and never written.

Facts are not kept: a fact is read again by its number (from 1), which is its line in either.
"""

from __future__ import annotations

import sqlite3
import time
from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from controller.core.model.events import AgentSaid, Event
from controller.core.model.facts import AnyFact
from controller.persistence.journal import DAMAGED, fact_lines
from experiments.results.events_file import CAMPUS, read_event
from experiments.worlds.live.operator import JOURNAL
from testbed.bounds import quoted
from testbed.errors import SetupError, SpecError
from testbed.identity import boot_id
from testbed.messages import Heartbeat
from topologies import files
from topologies.decoding import UNDECODABLE
from topologies.spec import Campus

Numbered = tuple[int, float, AnyFact]
_EVENTS: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


@dataclass
class HeartbeatRates:
    """Rates of agents' jobs and flows, from heartbeat to heartbeat."""

    _seen: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)  # (host, transfer)
    # host -> keys that got something
    _flows: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def take(self, host: str, at_s: float, beat: Heartbeat) -> tuple[dict[str, int], dict[str, float]]:
        """Return (steps by job, payload bytes/s by flow) from this heartbeat and the one before; 0 for flows that ended."""
        use: dict[str, float] = dict.fromkeys(self._flows[host], 0.0)
        now: set[str] = set()
        for count in beat.flows:
            job, _, destination = count.transfer.partition(">")
            key = f"{job.split(':')[0]}:{host}>{destination}"
            before = self._seen.get((host, count.transfer))
            if before is not None and at_s > before[0] and count.payload_bytes >= before[1]:
                rate = (count.payload_bytes - before[1]) / (at_s - before[0])
            else:
                rate = count.payload_bytes / count.age_s if count.age_s > 0.0 else 0.0
            use[key] = use[key] + rate if key in now else rate
            now.add(key)
        for seen in [seen for seen in self._seen if seen[0] == host]:
            del self._seen[seen]
        for count in beat.flows:
            self._seen[host, count.transfer] = at_s, count.payload_bytes
        self._flows[host] = now
        return {claim.job: claim.step for claim in beat.jobs}, use


class JournalSource:
    """A journal: of a campus that stands (`live`), or of a run that is over. SetupError: it is none, or not this user's."""

    def __init__(self, path: Path, *, live: bool) -> None:
        self.path, self.world = path, "live" if live else "recorded"
        try:
            self._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
            origin = dict(self._db.execute("SELECT key, value FROM origin"))
        except DAMAGED as error:
            raise SetupError(f"{path}: {error}: a journal that this user may read") from error
        try:
            started_s = float(origin["started_monotonic_s"])
            self.campus = files.loads(str(origin["campus"]), str(path))
        except (KeyError, ValueError) as error:
            raise SetupError(f"{path} does not say whose journal it is, or of when: {quoted(str(error))}") from error
        same_boot = origin.get("boot") == boot_id()
        self._started_s = started_s if live and same_boot else None
        self._heard = 0  # number of the last input whose report was read

    def now_s(self) -> float | None:
        """Return the journal's time now; None: its run is over, or of before this boot."""
        return None if self._started_s is None else time.monotonic() - self._started_s

    def facts(self, first: int, most: int) -> list[Numbered]:
        """Return facts from that number on, as many as there are by now. SetupError names the line that is none."""
        rows = self._db.execute(
            "SELECT number, at_s, body FROM fact WHERE number > ? ORDER BY number LIMIT ?", (first - 1, most)
        ).fetchall()
        return list(fact_lines(self.path, iter(rows)))

    def reports(self, most: int) -> list[tuple[str, float, Heartbeat]]:
        """Return (host, s, heartbeat) of those that came since the last call; the first time, from now on."""
        last = self._last_input()
        first = max(self._heard, last - most) if self._heard else last
        self._heard = last
        return list(self._beats(first, last)) if last > first else []

    def _last_input(self) -> int:
        return int(self._db.execute("SELECT coalesce(max(number), 0) FROM input").fetchone()[0])

    def _beats(self, after: int, last: int) -> Iterator[tuple[str, float, Heartbeat]]:
        rows = self._db.execute(
            "SELECT at_s, body FROM input WHERE number > ? AND number <= ? ORDER BY number", (after, last)
        ).fetchall()
        for at_s, body in rows:
            try:
                event = _EVENTS.decode(body)
            except (*UNDECODABLE, TypeError):
                continue  # what else it reported is in other lines
            if isinstance(event, AgentSaid) and isinstance(event.message, Heartbeat):
                yield event.host, at_s, event.message


class EventsFile:
    """A file of facts (events.jsonl)."""

    def __init__(self, path: Path, campus: Campus) -> None:
        self.path, self.campus, self.world = path, campus, "virtual"
        self._file = path.open("rb")
        self._ends = array("Q", [0])
        for line in self._file:
            self._ends.append(self._ends[-1] + len(line))

    def facts(self, first: int, most: int) -> list[Numbered]:
        """Return facts from that number on. SpecError names the line that is none."""
        last = min(len(self._ends) - 1, first + most - 1)
        if last < first:
            return []
        self._file.seek(self._ends[first - 1])
        lines = self._file.read(self._ends[last] - self._ends[first - 1]).split(b"\n")
        numbered = enumerate(lines[: last - first + 1], first)
        return [(number, *read_event(line, number, self.path)) for number, line in numbered]


def open_run(path: Path) -> JournalSource | EventsFile:
    """Return a run that is over, by its events.jsonl (or its journal).

    The journal beside it is read where there is one, since it has the agents' counts, too. Else the campus comes from
    `campus.toml` beside it. SpecError: there is no such file, or the campus is unknown.
    """
    if not path.is_file():
        raise SpecError("RUN", str(path), "the events.jsonl of a run, or its journal.sqlite")
    if path.suffix == ".sqlite":
        return JournalSource(path, live=False)
    beside = path.with_name(JOURNAL)
    if beside.exists():
        return JournalSource(beside, live=False)
    if not path.with_name(CAMPUS).exists():
        raise SpecError("RUN", str(path), f"a run with {JOURNAL} or {CAMPUS} beside it")
    return EventsFile(path, files.load(path.with_name(CAMPUS)))
