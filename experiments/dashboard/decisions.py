"""Explanations of decisions: the run decided again by the same core, in a process of its own, with a witness.

The core is deterministic. It handles the events of a journal again, or plays a virtual run again from its scenario and
seed. So it comes to the same decisions, and its facts are compared with the recorded ones, fact for fact. So nothing
more has to be written while a campus works, and no decision of the live coordinator waits for an explanation. The
process begins at the first question, has a low priority, and follows a journal that is in use.

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from controller.core.coordinator import Coordinator
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model.facts import AnyFact
from controller.core.parameters import Protocol, Queue
from controller.persistence.journal import DAMAGED
from controller.warm_up import rehearse
from experiments.dashboard.cache import DecisionCache
from experiments.dashboard.explanations import Explanations
from experiments.dashboard.sources import EventsFile, JournalSource, open_run
from experiments.inputs.replay_file import REPLAY, read_replay
from experiments.inputs.traces import trace_of
from experiments.worlds.live.operator import JOURNAL
from experiments.worlds.virtual.run import BEGIN_S, LATEST_FACTOR, make_world
from experiments.worlds.virtual.world import VirtualWorld
from testbed.errors import SetupError, TestbedError
from topologies import files
from topologies.decoding import UNDECODABLE

Parameters = TypeVar("Parameters", Protocol, Queue)
FOLLOW_S = 0.25  # between two looks at a journal that is in use
READ = 1000  # events at a time
NICE = 10  # below all that plays a campus, and not so low that a busy machine never comes to it
_EVENTS: msgspec.msgpack.Decoder[ev.Event] = msgspec.msgpack.Decoder(ev.Event)


# ---------------------------------------------------------------- deciding again


class Differs(Exception):
    """Error: the program decides differently from the one that played the run."""


class Divergence:
    """Holds what is recorded again to what the run recorded, in order."""

    def __init__(self, source: JournalSource | EventsFile) -> None:
        self._source, self.number = source, 0
        self._next: list[tuple[int, float, AnyFact]] = []

    def take(self, at_s: float, fact: AnyFact) -> int:
        """Return the number of this fact. Differs: the run has another there."""
        if not self._next:
            self._next = self._source.facts(self.number + 1, READ)[::-1]
        if not self._next:
            raise Differs(f"the run ends with fact {self.number}, and this program records more")
        number, was_s, was = self._next.pop()
        if was != fact or abs(was_s - at_s) > 1e-6:
            raise Differs(f"at {at_s:.3f} s this program decides otherwise than the one that played the run")
        self.number = number
        return number


def decide_journal(source: JournalSource, kept: DecisionCache, *, follow: bool) -> None:
    """Hand the events of a journal to a core of the same beginning; with `follow`, go on as they come."""
    db = sqlite3.connect(f"file:{source.path}?mode=ro", uri=True, isolation_level=None)
    origin = dict(db.execute("SELECT key, value FROM origin"))
    protocol, queue = parameters_of(Protocol, origin["protocol"]), parameters_of(Queue, origin["queue"])
    rehearse(protocol.policy)
    draws = random.Random(f"{origin['seed']} placement")
    secret = bytes.fromhex(origin.get("secret", ""))
    core = Coordinator(files.loads(origin["campus"]), protocol, queue, draws.random, secret)
    reasons = core.cluster.witness = Explanations(core.cluster)
    comparison = Divergence(source)
    for at_s, event in _events(db, follow, lambda: kept.tell(comparison.number, "deciding", now=True)):
        effects = core.handle(event, at_s)
        facts: list[Any] = [effect.fact for effect in effects if isinstance(effect, do.Record)]
        for fact, decisions in zip(facts, reasons.explain(facts), strict=True):
            number = comparison.take(at_s, fact)
            if decisions:
                kept.put(number, decisions)
        kept.tell(comparison.number, "deciding")
    kept.tell(sys.maxsize >> 1, "done", now=True)


def _events(
    db: sqlite3.Connection, follow: bool, caught_up: Callable[[], None]
) -> Iterator[tuple[float, ev.Event]]:
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


def parameters_of(kind: type[Parameters], text: str) -> Parameters:
    """Return the parameters in a journal's origin, which holds numbers as exact text."""
    told: dict[str, str] = msgspec.json.decode(text)
    known = {each.name for each in fields(kind)}
    if unknown := sorted(told.keys() - known):
        raise SetupError(f"parameters of another version: {', '.join(unknown)}")
    values: dict[str, Any] = {
        name: math.inf if value == "inf" else ast.literal_eval(value) for name, value in told.items()
    }
    return kind(**values)


class WitnessedWorld(VirtualWorld):
    """A virtual world whose coordinator has a witness; `explained` is called after each of its events."""

    explained: Callable[[Sequence[tuple[float, Any]]], None] = staticmethod(lambda facts: None)

    def decide(self, event: ev.Event) -> None:
        """Decide as the parent does."""
        before = len(self.facts)
        super().decide(event)
        self.explained(self.facts[before:])


def decide_virtual(folder: Path, source: EventsFile, kept: DecisionCache) -> None:
    """Play a virtual run again."""
    replay = read_replay(folder)
    trace = trace_of(replay.scenario, replay.records)
    world = make_world(replay.scenario, trace, system=replay.system, kind=WitnessedWorld)
    assert isinstance(world, WitnessedWorld)
    rehearse(world.protocol.policy)
    cluster = world.coordinator.cluster
    reasons = cluster.witness = Explanations(cluster)
    comparison = Divergence(source)

    def explained(timed: Sequence[tuple[float, Any]]) -> None:
        told = reasons.explain([fact for _, fact in timed])
        for (at_s, fact), decisions in zip(timed, told, strict=True):
            number = comparison.take(at_s, fact)
            if decisions:
                kept.put(number, decisions)
        kept.tell(comparison.number, "deciding")

    world.explained = explained
    end_s = BEGIN_S + replay.scenario.played().duration_s
    world.run(end_s)
    while replay.until_over and not world.over() and world.now_s < end_s * LATEST_FACTOR:
        world.run(min(end_s * LATEST_FACTOR, world.now_s + world.protocol.day_s / 24.0))
    world.finish()
    kept.tell(sys.maxsize >> 1, "done", now=True)


def main() -> None:
    """Run the process."""
    parser = argparse.ArgumentParser(prog="python -m experiments.dashboard.decisions")
    parser.add_argument("run", type=Path)
    parser.add_argument("kept", type=Path)
    parser.add_argument("--follow", action="store_true")
    given = parser.parse_args()
    os.nice(NICE)
    kept = DecisionCache(given.kept)
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
    except (TestbedError, Differs, *DAMAGED, *UNDECODABLE) as error:
        kept.tell(0, "failed", str(error), now=True)


if __name__ == "__main__":
    main()
