"""Why each decision was made: the run decided again by the same core, in a process of its own, with a witness.

The core is deterministic: handed the events of a journal (or, of a virtual run, played again from its scenario and seed) it comes
to the same decisions, and what it records is compared with what the run recorded, fact for fact. So nothing more has to be
written while a campus works, and no decision of the live coordinator waits for an explanation. The process begins at the first
question, has the lowest priority, and follows a journal that is in use.

What it finds is kept in a file without a name for others (SQLite, in a private folder), compressed, at most MOST_BYTES of it:
of more, the oldest are given up.

python -m experiments.dashboard.decisions RUN KEPT [--follow]
"""

from __future__ import annotations

import argparse
import ast
import math
import os
import random
import sqlite3
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from controller.core.coordinator import Coordinator
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model.facts import AnyFact
from controller.core.settings import Settings
from controller.warm_up import rehearse
from experiments.dashboard.reasons import Decision, Reasons
from experiments.dashboard.sources import EventsFile, JournalSource, open_run
from experiments.inputs.replay_file import REPLAY, read_replay
from experiments.inputs.traces import trace_of
from experiments.worlds.live.operator import JOURNAL
from experiments.worlds.virtual.run import BEGIN_S, LATEST_FACTOR, make_world
from experiments.worlds.virtual.world import VirtualWorld
from testbed.errors import SetupError, TestbedError
from topologies import files

MOST_BYTES = 256 << 20
FOLLOW_S = 0.25  # between two looks at a journal that is in use
COMMIT_S = 0.5
READ = 1000  # events at a time
NICE = 19
_EVENTS: msgspec.msgpack.Decoder[ev.Event] = msgspec.msgpack.Decoder(ev.Event)
_SCHEMA = """
CREATE TABLE why (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE progress (one INTEGER PRIMARY KEY, number INTEGER, state TEXT, words TEXT);
"""


class Kept:
    """The writing side of what was found."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.executescript(_SCHEMA)
        self._most, self._bytes = most_bytes, 0
        self._waiting: list[tuple[int, bytes]] = []
        self._committed_s = 0.0

    def put(self, number: int, decisions: Sequence[Decision]) -> None:
        """The decisions behind a fact."""
        body = zlib.compress(msgspec.json.encode(decisions), 3)
        self._bytes += len(body)
        self._waiting.append((number, body))

    def tell(self, number: int, state: str, words: str = "", *, now: bool = False) -> None:
        """How far it is; what was found is there for readers a moment later, or now."""
        if not now and time.monotonic() < self._committed_s + COMMIT_S:
            return
        self._committed_s = time.monotonic()
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR REPLACE INTO why VALUES (?, ?)", self._waiting)
        self._waiting = []
        while self._bytes > self._most:
            oldest = self._db.execute(
                "SELECT number, length(body) FROM why ORDER BY number LIMIT 500"
            ).fetchall()
            if not oldest:
                break
            self._db.execute("DELETE FROM why WHERE number <= ?", (oldest[-1][0],))
            self._bytes -= sum(size for _, size in oldest)
        self._db.execute("INSERT OR REPLACE INTO progress VALUES (1, ?, ?, ?)", (number, state, words))
        self._db.execute("COMMIT")


class Answers:
    """The reading side, for the process that serves the page."""

    def __init__(self, path: Path) -> None:
        self._path, self._db = path, None if not path.exists() else _reading(path)

    def of(self, number: int) -> dict[str, Any]:
        """{"state": done, deciding, failed or none, ...}: decisions, how far it is, or why there are none."""
        if self._db is None and self._path.exists():
            self._db = _reading(self._path)
        if self._db is None:
            return {"state": "deciding", "until": 0}
        try:
            found = self._db.execute("SELECT body FROM why WHERE number = ?", (number,)).fetchone()
            progress = self._db.execute("SELECT number, state, words FROM progress").fetchone()
        except sqlite3.OperationalError:  # not made yet
            return {"state": "deciding", "until": 0}
        if found is not None:
            return {"state": "done", "decisions": msgspec.json.decode(zlib.decompress(found[0]))}
        until, state, words = progress or (0, "deciding", "")
        if state == "failed":
            return {"state": "failed", "words": words}
        if until < number:
            return {"state": "deciding", "until": until}
        first = self._db.execute("SELECT min(number) FROM why").fetchone()[0]
        gone = first is not None and number < first
        words = (
            "it was given up to make room" if gone else "no decision of P1, P2, P3 or the queue is behind it"
        )
        return {"state": "none", "words": words}


def _reading(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)


# ---------------------------------------------------------------- deciding again


class Differs(Exception):
    """This program decides otherwise than the one that played the run."""


class Comparison:
    """Holds what is recorded again to what the run recorded, in order."""

    def __init__(self, source: JournalSource | EventsFile) -> None:
        self._source, self.number = source, 0
        self._next: list[tuple[int, float, AnyFact]] = []

    def take(self, at_s: float, fact: AnyFact) -> int:
        """The number of this fact. Differs: the run has another there."""
        if not self._next:
            self._next = self._source.facts(self.number + 1, READ)[::-1]
        if not self._next:
            raise Differs(f"the run ends with fact {self.number}, and this program records more")
        number, was_s, was = self._next.pop()
        if was != fact or abs(was_s - at_s) > 1e-6:
            raise Differs(f"at {at_s:.3f} s this program decides otherwise than the one that played the run")
        self.number = number
        return number


def decide_journal(source: JournalSource, kept: Kept, *, follow: bool) -> None:
    """Hand the events of a journal to a core of the same beginning; with `follow`, go on as they come."""
    db = sqlite3.connect(f"file:{source.path}?mode=ro", uri=True, isolation_level=None)
    origin = dict(db.execute("SELECT key, value FROM origin"))
    settings = settings_of_origin(origin["settings"])
    rehearse(settings.policy)
    draws = random.Random(f"{origin['seed']} placement")
    secret = bytes.fromhex(origin.get("secret", ""))
    core = Coordinator(files.loads(origin["campus"]), settings, draws.random, secret)
    reasons = core.cluster.witness = Reasons(core.cluster)
    comparison = Comparison(source)
    for at_s, event in _events(db, follow, lambda: kept.tell(comparison.number, "deciding", now=True)):
        effects = core.handle(event, at_s)
        facts: list[Any] = [effect.fact for effect in effects if isinstance(effect, do.Record)]
        for fact, decisions in zip(facts, reasons.explain(facts), strict=True):
            number = comparison.take(at_s, fact)
            if decisions:
                kept.put(number, decisions)
        kept.tell(comparison.number, "deciding")
    kept.tell(sys.maxsize >> 1, "done", now=True)


def _events(db: sqlite3.Connection, follow: bool, caught_up: Any) -> Iterator[tuple[float, ev.Event]]:
    number = 0
    while True:
        rows = db.execute(
            "SELECT number, at_s, body FROM input WHERE number > ? ORDER BY number LIMIT ?", (number, READ)
        ).fetchall()
        for _, at_s, body in rows:
            yield at_s, _EVENTS.decode(body)
        number = rows[-1][0] if rows else number
        if len(rows) < READ:
            if not follow:
                return
            caught_up()
            time.sleep(FOLLOW_S)


def settings_of_origin(text: str) -> Settings:
    """Settings as a journal's origin has them: numbers as exact text."""
    told: dict[str, str] = msgspec.json.decode(text)
    known = {each.name for each in fields(Settings)}
    if unknown := sorted(told.keys() - known):
        raise SetupError(f"settings of another version: {', '.join(unknown)}")
    return Settings(
        **{name: math.inf if value == "inf" else ast.literal_eval(value) for name, value in told.items()}
    )


class WitnessedWorld(VirtualWorld):
    """A virtual world whose coordinator has a witness; `explained` is called after each of its events."""

    explained: Callable[[Sequence[tuple[float, Any]]], None] = staticmethod(lambda facts: None)

    def decide(self, event: ev.Event) -> None:
        """As the parent's."""
        before = len(self.facts)
        super().decide(event)
        self.explained(self.facts[before:])


def decide_virtual(folder: Path, source: EventsFile, kept: Kept) -> None:
    """Play a virtual run again."""
    replay = read_replay(folder)
    trace = trace_of(replay.scenario, replay.records)
    world = make_world(replay.scenario, trace, system=replay.system, kind=WitnessedWorld)
    assert isinstance(world, WitnessedWorld)
    rehearse(world.settings.policy)
    cluster = world.coordinator.cluster
    reasons = cluster.witness = Reasons(cluster)
    comparison = Comparison(source)

    def explained(timed: Sequence[tuple[float, Any]]) -> None:
        told = reasons.explain([fact for _, fact in timed])
        for (at_s, fact), decisions in zip(timed, told, strict=True):
            number = comparison.take(at_s, fact)
            if decisions:
                kept.put(number, decisions)
        kept.tell(comparison.number, "deciding")

    world.explained = explained  # type: ignore[method-assign]
    end_s = BEGIN_S + replay.scenario.played().duration_s
    world.run(end_s)
    while replay.until_over and not world.over() and world.now_s < end_s * LATEST_FACTOR:
        world.run(min(end_s * LATEST_FACTOR, world.now_s + world.settings.day_s / 24.0))
    world.finish()
    kept.tell(sys.maxsize >> 1, "done", now=True)


def main() -> None:
    """The process."""
    parser = argparse.ArgumentParser(prog="python -m experiments.dashboard.decisions")
    parser.add_argument("run", type=Path)
    parser.add_argument("kept", type=Path)
    parser.add_argument("--follow", action="store_true")
    given = parser.parse_args()
    os.nice(NICE)
    kept = Kept(given.kept)
    try:
        if given.follow:
            decide_journal(JournalSource(given.run, live=True), kept, follow=True)
            return
        source = open_run(given.run)
        if isinstance(source, JournalSource):
            decide_journal(source, kept, follow=False)
        elif given.run.with_name(REPLAY).exists():
            decide_virtual(given.run.parent, source, kept)
        else:
            raise SetupError(
                f"there is neither {JOURNAL} nor {REPLAY} beside {given.run.name} to decide from again"
            )
    except (TestbedError, Differs, sqlite3.Error, msgspec.MsgspecError) as error:
        kept.tell(0, "failed", str(error), now=True)


if __name__ == "__main__":
    main()
