"""events.jsonl: the facts of a run, a line each, and the digest that "the same bytes" is judged by; the campus beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from controller.core.model.facts import AnyFact
from controller.persistence.journal import out_of_range
from testbed.bounds import LARGEST_NUMBER, quoted
from topologies import files
from topologies.decoding import UNDECODABLE
from topologies.errors import SpecError
from topologies.spec import Campus
from topologies.writing import whole, write_whole

EVENTS, CAMPUS = "events.jsonl", "campus.toml"
_FACTS: msgspec.json.Decoder[AnyFact] = msgspec.json.Decoder(AnyFact)


class _Timed(msgspec.Struct):
    at_s: float


_TIMED = msgspec.json.Decoder(_Timed)


def write_run(folder: Path, facts: Iterable[tuple[float, AnyFact]], campus: Campus) -> None:
    """Write `folder`/events.jsonl, and the campus as it was played: the live page replays a run from both."""
    write_whole(folder / CAMPUS, files.dumps(campus))
    write_events(folder / EVENTS, facts)


def write_events(path: Path, facts: Iterable[tuple[float, AnyFact]]) -> None:
    """Write a JSON object a line, as a live run's journal is exported."""
    with whole(path) as scratch, scratch.open("wb") as lines:
        for line in event_lines(facts):
            lines.write(line)


def event_lines(facts: Iterable[tuple[float, AnyFact]]) -> Iterable[bytes]:
    """Yield the lines of events.jsonl."""
    for at_s, fact in facts:
        yield msgspec.json.encode({"at_s": round(at_s, 6), **msgspec.to_builtins(fact)}) + b"\n"


def read_event(line: bytes, number: int, path: Path) -> tuple[float, AnyFact]:
    """Return a line's fact with its time. SpecError names the line that is none."""
    try:
        at_s, fact = _TIMED.decode(line).at_s, _FACTS.decode(line)
        wrong = out_of_range(fact) or ("" if 0.0 <= at_s <= LARGEST_NUMBER else f"at_s = {at_s}")
    except UNDECODABLE as error:
        wrong = quoted(str(error))
    if wrong:
        raise SpecError("line", number, f"a fact with at_s, as a run writes them ({wrong})", str(path))
    return at_s, fact


def digest(facts: Iterable[tuple[float, AnyFact]]) -> str:
    """Return the SHA-256 of events.jsonl: what "the same bytes" is judged by."""
    told = hashlib.sha256()
    for line in event_lines(facts):
        told.update(line)
    return told.hexdigest()
