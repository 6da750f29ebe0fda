"""The append-only memory of a run: an SQLite file in WAL mode that outlives any process that writes it.

Two tables: `input`, every event as it reached the coordinator, and `fact`, everything that happened or was decided. One
transaction holds an event and all that followed from it, committed before anybody is told, so what was promised is on disk
(against the death of processes; WAL with synchronous=NORMAL does not promise it against loss of power).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from controller.core.facts import AnyFact, Fact

_SCHEMA = """
CREATE TABLE IF NOT EXISTS input (number INTEGER PRIMARY KEY, at_s REAL NOT NULL, source TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS fact (number INTEGER PRIMARY KEY, at_s REAL NOT NULL, body TEXT NOT NULL);
"""
_FACTS: msgspec.json.Decoder[AnyFact] = msgspec.json.Decoder(AnyFact)
_ENCODER = msgspec.json.Encoder()


class Journal:
    """The writing side; owned by the coordinator's process. Times are seconds since the coordinator started."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)

    def begin(self) -> None:
        """Open the transaction of one event."""
        self._db.execute("BEGIN")

    def append_input(self, at_s: float, source: str, body: bytes) -> None:
        """An event, as it came."""
        self._db.execute("INSERT INTO input (at_s, source, body) VALUES (?, ?, ?)", (at_s, source, body))

    def append_fact(self, at_s: float, fact: Fact) -> bytes:
        """A fact; returns its JSON."""
        body = _ENCODER.encode(fact)
        self._db.execute("INSERT INTO fact (at_s, body) VALUES (?, ?)", (at_s, body.decode()))
        return body

    def commit(self) -> None:
        """Close the transaction: from here on it survives this process."""
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file; an open transaction is undone."""
        self._db.close()


def read_facts(path: Path) -> Iterator[tuple[float, AnyFact]]:
    """(seconds, fact) in order, from a journal that may be in use or left by a killed process."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        for at_s, body in db.execute("SELECT at_s, body FROM fact ORDER BY number"):
            yield at_s, _FACTS.decode(body)
    finally:
        db.close()


def export_jsonl(path: Path, target: Path) -> int:
    """Write all facts as one JSON object a line, each with `at_s`; returns how many."""
    count = 0
    with target.open("w") as out:
        for at_s, fact in read_facts(path):
            record = {"at_s": round(at_s, 6), **msgspec.to_builtins(fact)}
            out.write(msgspec.json.encode(record).decode() + "\n")
            count += 1
    return count
