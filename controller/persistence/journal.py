"""The append-only record of a run: an SQLite file in WAL mode that outlives any process that writes it.

Two tables: `input`, every event as it reached the coordinator, and `fact`, everything that happened or was decided. One
transaction holds an event and all that followed from it. It is committed before any message about it is sent, so
promises are on disk (against the death of processes; WAL with synchronous=NORMAL does not protect against loss of
power). A third, `origin`, holds the coordinator's identity and the moment of its time 0: a coordinator begins again
from `input` alone (see `recovery`). The fourth, `snapshot`, only saves time.

A line that could not be read back is not written (`encoded`). One that lies there all the same (from an earlier
version or a torn disk) is named by its number and time. The journal is then put aside, and a coordinator goes on beside it
with what comes before that line (`recovery.salvage`).

Each event has a line of its own, whose number is written once: the writer of the next one leads (`lines`). SQLite's
lock lasts for one transaction, so no process has to release anything when it dies.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import msgspec

from controller.core.model.events import AgentGone, AgentSaid, Event
from controller.core.model.facts import AnyFact, Fact
from controller.persistence.lines import Deposed, Entry, LogLine
from testbed.bounds import LARGEST_INTEGER, LARGEST_NUMBER, quoted
from testbed.errors import InvariantBroken, SetupError

# by SQLite's primary codes
_DISK = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_IOERR: errno.EIO, sqlite3.SQLITE_BUSY: errno.EBUSY}
# what reading a damaged database raises: sqlite3 decodes its own messages, which may quote what is damaged
DAMAGED = (sqlite3.Error, OverflowError, UnicodeDecodeError)

_TABLES = (
    "origin (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "input (number INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, at_s REAL NOT NULL, source TEXT NOT NULL, body BLOB NOT NULL)",
    "fact (number INTEGER PRIMARY KEY, at_s REAL NOT NULL, body TEXT NOT NULL)",
    "snapshot (event INTEGER PRIMARY KEY, facts INTEGER NOT NULL, submitted INTEGER NOT NULL, program TEXT NOT NULL, "
    "body BLOB NOT NULL)",
)
_FACTS: msgspec.json.Decoder[AnyFact] = msgspec.json.Decoder(AnyFact)
_ENCODER = msgspec.json.Encoder()
_EVENTS: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)
_EVENT_ENCODER = msgspec.msgpack.Encoder()
ASIDE = ".damaged-"  # in the name of a journal beside which another was begun: its number follows
LONGEST_LOG_PAGES = 8192  # of 4 KiB: 500 hosts write as much in two minutes
DIGEST_BYTES = 16  # before a snapshot's body
# of a body that is none: TypeError is that of a number or of nothing, where text or bytes should be
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, TypeError, RecursionError, MemoryError)


class NoJournal(SetupError):
    """Absence of a journal: there is none in a file, or none has been begun."""


class DamagedJournal(SetupError):
    """A journal with something that cannot be read, or from which the program that wrote it would decide otherwise."""


class _Database(sqlite3.Connection):
    """A connection that raises an OSError naming the journal for a full or broken disk: SQLite names no file."""

    path = ""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Do one statement. OSError."""
        try:
            return super().execute(sql, parameters)
        except sqlite3.OperationalError as error:
            if number := _DISK.get(error.sqlite_errorcode & 0xFF):
                raise OSError(number, os.strerror(number), self.path) from error
            raise


class Journal:
    """The record of a coordinator; a log, where the coordinators that share it share a machine.

    SetupError: it is not a journal. OSError, here and at each write: the disk is full or broken.
    """

    _beside: _Database | None = None  # the connection of the thread that carries the log into the journal

    def __init__(self, path: Path) -> None:
        self.path, self.number, self.epoch, self.last_s = path, 0, 0, 0.0
        if not path.exists():  # a descriptor that is closed takes SQLite's locks of this process with it
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)  # as are the files that SQLite puts beside it
        try:
            self._db = sqlite3.connect(path, isolation_level=None, factory=_Database)
            self._db.path = str(path)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            for table in _TABLES:
                self._db.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        except (*DAMAGED, OSError) as error:
            self.close()
            if isinstance(error, OSError):
                raise
            raise DamagedJournal(f"{path} is not a journal: {error}; name another file") from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write all of it or, after an error, none. Deposed: another has written a line of one of these numbers."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.IntegrityError):
                raise Deposed(f"{self.path}: another coordinator has written line {self.number + 1}") from error
            raise

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Read lines and facts of one moment, whatever another process writes meanwhile."""
        self._db.execute("BEGIN")
        yield
        self._db.execute("COMMIT")

    def origin(self) -> dict[str, str]:
        """Return the identity of its coordinator; empty: a new journal. SetupError: it holds events but no origin."""
        origin = dict(self._read("SELECT key, value FROM origin"))
        if not origin and any(self._read("SELECT 1 FROM input LIMIT 1")):
            raise SetupError(f"{self.path} was written by an earlier version of this program; name another file")
        return origin

    def found(self, origin: dict[str, str]) -> dict[str, str]:
        """Record the identity of its coordinator, unless another has; return it."""
        with self._transaction():
            self._db.executemany("INSERT OR IGNORE INTO origin (key, value) VALUES (?, ?)", list(origin.items()))
        return self.origin()

    def fold_elsewhere(self) -> None:
        """Leave it to `fold_in` to carry the log beside the journal (SQLite's WAL) into it.

        That waits for the disk; otherwise the next commit after every few megabytes would.
        """
        self._db.execute("PRAGMA wal_autocheckpoint = 0")
        # it waits for no reader, since writers would have to wait with it
        self._beside = sqlite3.connect(self.path, 0.0, isolation_level=None, factory=_Database, check_same_thread=False)
        self._beside.path = str(self.path)

    def fold_in(self) -> None:
        """Carry what the log beside the journal holds into it; called in a thread, so that no event waits for the disk.

        A log that has grown long is begun again: for the little that was written meanwhile an event does wait.
        """
        if self._beside is not None:
            _, pages, _ = self._beside.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages > LONGEST_LOG_PAGES:
                self._beside.execute("PRAGMA wal_checkpoint(RESTART)")

    def append(self, entries: Iterable[Entry]) -> int:
        """Write events with what followed, in one transaction; return the last number. They survive this process then.

        The column `source` is for readers of the table: an agent's host, or the event's kind.
        """
        number, last_s = self.number, self.last_s
        with self._transaction():
            for at_s, event, facts in entries:
                number, last_s = number + 1, at_s
                source = event.host if isinstance(event, AgentSaid | AgentGone) else type(event).__name__
                self._insert(number, self.epoch, at_s, source, _EVENT_ENCODER.encode(event))
                for fact in facts:
                    self._db.execute("INSERT INTO fact (at_s, body) VALUES (?, ?)", (at_s, encoded(fact).decode()))
            if number == self.number:
                number += 1
                self._insert(number, self.epoch, last_s, "", b"")
        self.number, self.last_s = number, last_s
        return number

    def seize(self, epoch: int) -> None:
        """Write the next line, as the first of a higher epoch. Deposed: another has written it."""
        with self._transaction():
            self._insert(self.number + 1, epoch, self.last_s, f"epoch {epoch}", b"")
        self.number, self.epoch = self.number + 1, epoch

    def _insert(self, *values: object) -> None:
        self._db.execute("INSERT INTO input (number, epoch, at_s, source, body) VALUES (?, ?, ?, ?, ?)", values)

    def counts(self) -> tuple[int, int]:
        """Return the numbers of the last line and the last fact."""
        line, fact = "SELECT coalesce(max(number), 0) FROM input", "SELECT coalesce(max(number), 0) FROM fact"
        found: tuple[int, int] = self._db.execute(f"SELECT ({line}), ({fact})").fetchone()
        return found

    def save(self, counts: tuple[int, int], submitted: int, program: str, body: bytes) -> None:
        """Save a snapshot of the core as it was when the journal had these `counts`; the one before is kept, older ones are not.

        Deposed: another coordinator has written since.
        """
        line, facts = counts
        with self._transaction():
            if self.counts()[0] != self.number:
                raise Deposed(f"{self.path}: another coordinator has written line {self.number + 1}")
            kept = _digest(line, facts, submitted, program, body) + body
            values = (line, facts, submitted, program, kept)
            self._db.execute("INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?, ?, ?)", values)
            latest = "SELECT event FROM snapshot ORDER BY event DESC LIMIT 2"
            self.prune(self._db.execute(f"SELECT min(event) FROM ({latest})").fetchone()[0])

    def prune(self, before: int) -> None:
        """Drop snapshots of before that line; lines and facts are the record of the run, and stay."""
        self._db.execute("DELETE FROM snapshot WHERE event < ?", (before,))

    def snapshots(self) -> Iterator[tuple[int, int, int, str, bytes]]:
        """Yield (number of the last event, of the last fact, jobs submitted, program, the core), the latest first.

        Damaged ones are passed over, for they only save time.
        """
        columns = "event, facts, submitted, program, body"
        rows = self._read(f"SELECT {columns} FROM snapshot ORDER BY event DESC")
        for event, facts, submitted, program, kept in rows:
            if isinstance(kept, bytes) and isinstance(program, str):
                body = kept[DIGEST_BYTES:]
                if kept[:DIGEST_BYTES] == _digest(event, facts, submitted, program, body):
                    yield event, facts, submitted, program, body

    def follow(self, after: int = 0) -> Iterator[LogLine]:
        """Yield lines beyond that number, in order, as far as they stand. SetupError names one that cannot be read."""
        rows = self._read("SELECT number, at_s, epoch, body FROM input WHERE number >= ? ORDER BY number", after)
        parts = ((number, at_s, (epoch, body)) for number, at_s, epoch, body in rows)
        due = after
        for number, at_s, (epoch, event) in _lines(self.path, "input", parts, _epoch_and_event):
            if number != (due or 1):
                raise DamagedJournal(unreadable(self.path, "input", due or 1, at_s, "it is missing"))
            self.number, self.epoch, self.last_s, due = number, epoch, at_s, number + 1
            if number > after:
                yield LogLine(number, epoch, at_s, event)
        if due == after > 0:
            raise DamagedJournal(unreadable(self.path, "input", after, self.last_s, "it is missing"))

    def _read(self, query: str, *values: object) -> Iterator[Any]:
        return _rows(self._db, self.path, query, *values)

    def facts(self, after: int = 0) -> Iterator[tuple[float, bytes]]:
        """Yield (seconds, JSON of the fact) in order, beyond the fact of that number.

        SetupError: one is no text, or has no time.
        """
        rows = self._read("SELECT number, at_s, body FROM fact WHERE number > ? ORDER BY number", after)
        for _, at_s, body in _lines(self.path, "fact", rows, _utf8):
            yield at_s, body

    def close(self) -> None:
        """Close the file; an open transaction is undone."""
        if self._beside is not None:
            self._beside.close()
        if hasattr(self, "_db"):
            self._db.close()


def encoded(fact: Fact) -> bytes:
    """Return a fact as the journal keeps it.

    InvariantBroken: one of its numbers is none that a reader would find there again.
    """
    if rule := out_of_range(fact):
        raise InvariantBroken(type(fact).__name__, rule, [repr(fact)])
    return _ENCODER.encode(fact)


def out_of_range(fact: Fact) -> str:
    """Return the reason why a number of the fact does not fit a journal; empty if all fit."""
    for name in fact.__struct_fields__:
        value = getattr(fact, name)
        kind = type(value)
        if kind is float:
            holds = -LARGEST_NUMBER <= value <= LARGEST_NUMBER  # of what is not a number, neither
        else:
            holds = kind is not int or -LARGEST_INTEGER <= value <= LARGEST_INTEGER
        if not holds:
            most = f"{LARGEST_NUMBER:g}" if kind is float else str(LARGEST_INTEGER)
            return f"{name} = {value}: a journal takes numbers up to {most}"
    return ""


def read_facts(path: Path) -> Iterator[tuple[float, AnyFact]]:
    """Yield (seconds, fact) in order, from a journal that may be in use or left by a killed process.

    SetupError: a line cannot be read; the message names it. NoJournal.
    """
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    except sqlite3.OperationalError as error:
        raise NoJournal(f"{path}: {error}; allowed: the journal of a run") from error
    try:
        if not any(_rows(db, path, "SELECT 1 FROM sqlite_master WHERE name = 'fact'")):
            raise NoJournal(f"{path} holds no table fact: no journal was begun there")
        query = "SELECT number, at_s, body FROM fact ORDER BY number"
        for _, at_s, fact in fact_lines(path, _rows(db, path, query)):
            yield at_s, fact
    finally:
        db.close()


def fact_lines(path: Path, rows: Iterator[tuple[int, float, str]]) -> Iterator[tuple[int, float, AnyFact]]:
    """Yield (number, seconds, fact) of rows of the table fact. SetupError: as `read_facts`."""
    for number, at_s, fact in _lines(path, "fact", rows, _FACTS.decode):
        if rule := out_of_range(fact):
            raise DamagedJournal(unreadable(path, "fact", number, at_s, rule))
        yield number, at_s, fact


def _rows(db: sqlite3.Connection, path: Path, query: str, *values: object) -> Iterator[Any]:
    """Yield the rows of a query. SetupError: the file is damaged."""
    try:
        for row in db.execute(query, values):  # noqa: UP028 - `yield from` closes the cursor, when the database may be closed
            yield row
    except DAMAGED as error:
        raise DamagedJournal(f"{path} is damaged: {error}") from error


def _lines(
    path: Path, table: str, rows: Iterator[tuple[Any, Any, Any]], decode: Callable[[Any], Any]
) -> Iterator[tuple[int, float, Any]]:
    """Yield (number, seconds, decoded body) of each row.

    SetupError: no time, a time that runs back, or an unreadable body.
    """
    before_s = 0.0
    for number, at_s, body in rows:
        if not isinstance(at_s, float) or not before_s <= at_s <= LARGEST_NUMBER:
            why = f"its time is {at_s!r}, and the line before is of {before_s!r} s"
            raise DamagedJournal(unreadable(path, table, number, before_s, why))
        before_s = at_s
        try:
            said = decode(body)
        except _UNREADABLE as error:
            raise DamagedJournal(unreadable(path, table, number, at_s, error)) from error
        yield number, at_s, said


def _epoch_and_event(row: tuple[Any, Any]) -> tuple[int, Event | None]:
    """Return a line's epoch and event. TypeError: it has no epoch."""
    epoch, body = row
    if not isinstance(epoch, int):
        raise TypeError("it has no epoch")
    return epoch, None if body == b"" else _EVENTS.decode(body)


def _utf8(body: object) -> bytes:
    """Return a text's bytes. TypeError: it is no text."""
    if not isinstance(body, str):
        raise TypeError("it is no text")
    return body.encode()


def unreadable(path: Path, table: str, number: int, at_s: float, error: object) -> str:
    """Return the message for a line that cannot be read."""
    return f"{path}: line {number} of the table {table}, at {at_s!r} s, cannot be read: {quoted(str(error))}"


def _digest(event: object, facts: object, submitted: object, program: str, body: bytes) -> bytes:
    """Return the digest of a snapshot: of its numbers and program, and of the core."""
    return blake2b(f"{event} {facts} {submitted} {program} ".encode() + body, digest_size=DIGEST_BYTES).digest()


def facts_before_damage(path: Path) -> tuple[list[tuple[float, AnyFact]], list[str]]:
    """Return the facts of a journal as far as they can be read, and what is damaged: it, and those that it was begun beside.

    NoJournal.
    """
    found, damage = list[tuple[float, AnyFact]](), [f"{aside.name} is damaged" for aside in damaged_beside(path)]
    try:
        for line in read_facts(path):
            found.append(line)
    except DamagedJournal as error:
        damage.append(str(error))
    return found, damage


def damaged_beside(path: Path) -> list[Path]:
    """Return the damaged journals beside which this one was begun, oldest first."""
    beside = (path.with_name(f"{path.name}{ASIDE}{number}") for number in count(1))
    return list(takewhile(Path.exists, beside))


def begin_as(other: Path, path: Path) -> None:
    """Begin a journal as a copy of another coordinator's, which may be in use; of one that cannot be read nothing is taken."""
    Journal(path).close()
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{other.absolute().as_uri()}?mode=ro", uri=True)) as found,
        closing(sqlite3.connect(path)) as mine,
    ):
        found.backup(mine)


def set_aside(path: Path) -> Path:
    """Rename an unused journal and SQLite's files beside it; return its new path."""
    aside = path.with_name(f"{path.name}{ASIDE}{len(damaged_beside(path)) + 1}")
    for suffix in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside
