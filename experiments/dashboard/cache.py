"""Explanations found so far: written by the process that decides again, read by the one that serves the page.

A file in a private folder (SQLite), compressed, at most MAX_BYTES of it: of more, the oldest are given up.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from controller.core.model import facts as f

Decision = dict[str, Any]  # as the page shows it
MAX_BYTES = 256 << 20
COMMIT_S = 0.5
DECIDED = (  # facts that a decision of P1, P2, P3 or the queue is behind
    f.JobQueued,
    f.JobRedirected,
    f.JobDispatched,
    f.JobWaits,
    f.CheckpointPlanned,
    f.MigrationAdmitted,
    f.MigrationDegraded,
)
_SCHEMA = """
CREATE TABLE why (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE progress (one INTEGER PRIMARY KEY, number INTEGER, state TEXT, words TEXT);
"""


class DecisionCache:
    """The writing side of what was found."""

    def __init__(self, path: Path, most_bytes: int = MAX_BYTES) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.executescript(_SCHEMA)
        self._most, self._bytes = most_bytes, 0
        self._waiting: list[tuple[int, bytes]] = []
        self._committed_s = 0.0

    def put(self, number: int, decisions: Sequence[Decision]) -> None:
        """Add the decisions behind a fact."""
        body = zlib.compress(msgspec.json.encode(decisions), 3)
        self._bytes += len(body)
        self._waiting.append((number, body))

    def tell(self, number: int, state: str, words: str = "", *, now: bool = False) -> None:
        """Record the progress; results are there for readers a moment later, or at once with `now`."""
        if not now and time.monotonic() < self._committed_s + COMMIT_S:
            return
        self._committed_s = time.monotonic()
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR REPLACE INTO why VALUES (?, ?)", self._waiting)
        self._waiting = []
        while self._bytes > self._most:
            oldest = self._db.execute(
                "SELECT number, length(body) FROM why ORDER BY number LIMIT 100"
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
        """Return {"state": done, deciding, failed or none, ...}: decisions, how far it is, or why there are none."""
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
