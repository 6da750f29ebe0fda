"""The append-only memory of a run: an SQLite file in WAL mode that outlives any process that writes it.

Two tables: `input`, every event as it reached the coordinator, and `fact`, everything that happened or was decided. One
transaction holds an event and all that followed from it, committed before anybody is told, so what was promised is on disk
(against the death of processes; WAL with synchronous=NORMAL does not promise it against loss of power). A third, `origin`, says
whose journal it is and when its time 0 was: a coordinator begins again from `input` alone (`controller.restart`). The fourth,
`snapshot`, only saves time.

One process at a time writes a journal: it holds a lock on the file beside it, which its death releases.
"""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from controller.core.events import Event
from controller.core.facts import AnyFact, Fact
from testbed.errors import SetupError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS origin (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS input (number INTEGER PRIMARY KEY, at_s REAL NOT NULL, source TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS fact (number INTEGER PRIMARY KEY, at_s REAL NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS snapshot (event INTEGER PRIMARY KEY, facts INTEGER NOT NULL, submitted INTEGER NOT NULL,
    program TEXT NOT NULL, body BLOB NOT NULL);
"""
_FACTS: msgspec.json.Decoder[AnyFact] = msgspec.json.Decoder(AnyFact)
_ENCODER = msgspec.json.Encoder()
_EVENTS: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)
_EVENT_ENCODER = msgspec.msgpack.Encoder()


class Journal:
    """The writing side; owned by the coordinator's process. Times are seconds since the coordinator started first.

    SetupError: another process writes it, or it is not a journal.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = _locked(path)
        try:
            self._open(path)
        except sqlite3.DatabaseError as error:
            self.close()
            raise SetupError(f"{path} is not a journal: {error}; name another file") from error

    def _open(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)

    def begin(self) -> None:
        """Open the transaction of one event."""
        self._db.execute("BEGIN")

    def origin(self) -> dict[str, str]:
        """Whose journal it is; empty: nobody's yet. SetupError: it holds events, and does not say whose."""
        origin = dict(self._db.execute("SELECT key, value FROM origin"))
        if not origin and self._db.execute("SELECT 1 FROM input LIMIT 1").fetchone():
            raise SetupError(
                f"{self.path} was written by an earlier version of this program; name another file"
            )
        return origin

    def found(self, origin: dict[str, str]) -> None:
        """Say whose it is, once."""
        self.begin()
        self._db.executemany("INSERT INTO origin (key, value) VALUES (?, ?)", list(origin.items()))
        self.commit()

    def append_input(self, at_s: float, source: str, event: Event) -> None:
        """An event, as it came; `source` says to readers of the table from whom."""
        body = _EVENT_ENCODER.encode(event)
        self._db.execute("INSERT INTO input (at_s, source, body) VALUES (?, ?, ?)", (at_s, source, body))

    def append_fact(self, at_s: float, fact: Fact) -> bytes:
        """A fact; returns its JSON."""
        body = encoded(fact)
        self._db.execute("INSERT INTO fact (at_s, body) VALUES (?, ?)", (at_s, body.decode()))
        return body

    def commit(self) -> None:
        """Close the transaction: from here on it survives this process."""
        self._db.execute("COMMIT")

    def undo(self) -> None:
        """Close the transaction as if it had not been opened, if one is open."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def save(self, submitted: int, program: str, body: bytes) -> None:
        """A snapshot of the core as it is after the last event; the one before is kept, older ones are not."""
        self.begin()
        self._db.execute(
            "INSERT OR REPLACE INTO snapshot VALUES ((SELECT max(number) FROM input),"
            " (SELECT coalesce(max(number), 0) FROM fact), ?, ?, ?)",
            (submitted, program, body),
        )
        kept = "SELECT event FROM snapshot ORDER BY event DESC LIMIT 2"
        self._db.execute(f"DELETE FROM snapshot WHERE event NOT IN ({kept})")
        self.commit()

    def snapshots(self) -> Iterator[tuple[int, int, int, str, bytes]]:
        """(number of the last event, of the last fact, jobs submitted, program, the core), the latest first."""
        columns = "event, facts, submitted, program, body"
        yield from self._db.execute(f"SELECT {columns} FROM snapshot ORDER BY event DESC")

    def inputs(self, after: int = 0) -> Iterator[tuple[float, Event]]:
        """(seconds, event) in order, beyond the event of that number. SetupError: one cannot be read."""
        rows = self._db.execute("SELECT at_s, body FROM input WHERE number > ? ORDER BY number", (after,))
        for at_s, body in rows:
            try:
                yield at_s, _EVENTS.decode(body)
            except msgspec.MsgspecError as error:
                raise SetupError(f"{self.path}: the event at {at_s:.6f} s cannot be read: {error}") from error

    def last_s(self) -> float:
        """Time of the last event; 0 without one."""
        row = self._db.execute("SELECT at_s FROM input ORDER BY number DESC LIMIT 1").fetchone()
        return float(row[0]) if row else 0.0

    def facts(self, after: int = 0) -> Iterator[tuple[float, bytes]]:
        """(seconds, JSON of the fact) in order, beyond the fact of that number."""
        rows = self._db.execute("SELECT at_s, body FROM fact WHERE number > ? ORDER BY number", (after,))
        for at_s, body in rows:
            yield at_s, body.encode()

    def close(self) -> None:
        """Close the file; an open transaction is undone."""
        if hasattr(self, "_db"):
            self._db.close()
        self._lock.close()


def _locked(path: Path) -> IO[bytes]:
    """A lock on the journal that lasts as long as the file object and the process."""
    lock = path.with_name(path.name + ".lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise SetupError(f"another coordinator writes {path}: end it first, or name another file") from error
    return lock


def encoded(fact: Fact) -> bytes:
    """A fact as the journal keeps it."""
    return _ENCODER.encode(fact)


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
