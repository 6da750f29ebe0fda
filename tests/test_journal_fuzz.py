"""Journals as torn disks, other versions and strangers leave them: read, or refused in words that name file and line."""

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from controller.persistence.journal import Journal, read_facts
from controller.persistence.recovery import origin_of
from controller.process import Candidate, CoordinatorConfig
from experiments.dashboard.feed import Feed
from experiments.dashboard.sources import EventsFile, open_run
from experiments.results.events_file import write_events
from testbed.errors import TestbedError
from tests.test_restart import SEED, a_journal
from tests.world import PROTOCOL, QUEUE, small_campus

GIVEN = PROTOCOL, replace(QUEUE, level_start=3.0)
BODIES = (7, 2.5, "", b"", "x" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", "[" * 9999)
TIMES = ("x", b"x", inf, -inf, -1.0, 1e308, 5.0)
NUMBERS = ("NaN", "null", "-1", "1e999", "9" * 30, '"x"', "[]", "{}", "true", "2.5")
ORIGINS = ("", "x", b"\xff", "1e999", "nan", "[]", "99", "{}")
# SQL of what may have happened to a table, and what is put into it
CHANGES: dict[str, tuple[Any, ...]] = {
    "UPDATE {table} SET body = ? WHERE number = {one}": BODIES,
    "UPDATE {table} SET at_s = ? WHERE number = {one}": TIMES,
    "UPDATE {table} SET number = ? WHERE number = {one}": (2**63 - 1, -5, 0),
    "UPDATE {table} SET body = (SELECT body FROM {table} WHERE number = {other} + ?) WHERE number = {one}": (0,),
    "DELETE FROM {table} WHERE number = {one} + ?": (0,),
    "UPDATE origin SET value = ? WHERE rowid = 1 + {one} % (SELECT count(*) FROM origin)": ORIGINS,
    "DELETE FROM origin WHERE rowid = 1 + {one} % (SELECT count(*) FROM origin) + ?": (0,),
    "UPDATE snapshot SET event = ?": (0, 3, 10**9, -1),
    "UPDATE snapshot SET facts = ?": (0, 3, 10**9, -1),
    "DROP TABLE {table}": (None,),
}
BYTES = st.tuples(st.integers(0, 2**20), st.sampled_from([b"", b"\0", b"\xff" * 9, b"{", b"9" * 30]))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a run with a snapshot in its midst, in one file."""
    path = tmp_path_factory.mktemp("fuzz") / "journal.sqlite"
    journal, _ = a_journal(path, 12.0, save_at=0.4)
    journal.found(origin_of(small_campus(), *GIVEN, SEED, 0.0))
    journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    journal.close()
    return path


def overwritten(data: bytes, edits: list[tuple[int, bytes]]) -> bytes:
    """Bytes replaced at these places; nothing to put there: cut off."""
    for place, new in edits:
        at = place % (len(data) + 1)
        data = data[:at] + new + data[at + len(new) :] if new else data[:at]
    return data


@st.composite
def statements(draw: st.DrawFn) -> tuple[str, tuple[Any, ...]]:
    """A change of a table."""
    text = draw(st.sampled_from(sorted(CHANGES)))
    value = draw(st.sampled_from(CHANGES[text]))
    table = draw(st.sampled_from(["input", "fact"]))
    one, other = draw(st.integers(1, 150)), draw(st.integers(1, 150))
    return text.format(table=table, one=one, other=other), () if value is None else (value,)


def refused(read: Callable[[], object], path: Path) -> str:
    """The words of the error, few, that name the file; empty if it can be read."""
    try:
        read()
    except TestbedError as error:
        assert str(path) in str(error) or "another coordinator" in str(error)
        assert len(str(error)) < 5000
        return str(error)
    return ""


def facts_of(path: Path) -> Callable[[], object]:
    return lambda: write_events(path.with_suffix(".jsonl"), read_facts(path))


def recovery_of(path: Path) -> Callable[[], object]:
    async def recover(journal: Journal) -> None:
        beside = path.with_suffix(".sock")
        candidate = Candidate(CoordinatorConfig(small_campus(), *GIVEN, SEED, path, beside, "127.0.0.1"), journal)
        candidate.seize()
        candidate.lead()

    def read() -> None:
        with closing(Journal(path)) as journal:
            trio.run(recover, journal)

    return read


def page_of(path: Path) -> str:
    """What the live page says of the source; it is read to its end, and at a moment."""

    async def read(feed: Feed) -> None:
        await feed.run()
        if not feed.broken:
            await feed.at(feed.head.at_s / 2.0)
        feed.since(-1, 0)

    try:
        source = open_run(path) if path.suffix == ".sqlite" else EventsFile(path, small_campus())
    except TestbedError as error:
        assert str(path) in str(error)
        return str(error)
    feed = Feed(source)
    trio.run(read, feed)
    assert not feed.broken or str(path) in feed.broken
    return feed.broken


@given(st.lists(BYTES, max_size=3) | st.lists(statements(), min_size=1, max_size=5))
def test_a_damaged_journal_is_read_or_refused_in_words_that_name_it(whole: Path, damage: list[Any]) -> None:
    path = whole.with_name("damaged.sqlite")
    for left in path.parent.glob("damaged.*"):
        left.unlink()
    shutil.copy(whole, path)
    if damage and isinstance(damage[0][0], int):
        path.write_bytes(overwritten(path.read_bytes(), damage))
    else:
        with closing(sqlite3.connect(path)) as db, db:
            for statement, values in damage:
                with suppress(sqlite3.IntegrityError, sqlite3.OperationalError):
                    db.execute(statement, values)
    refused(facts_of(path), path)
    page_of(path)
    refused(recovery_of(path), path)


@given(st.lists(BYTES | st.tuples(st.integers(0, 2**20), st.sampled_from(NUMBERS)), min_size=1, max_size=3))
def test_a_damaged_file_of_facts_is_shown_or_refused_in_words_that_name_it(whole: Path, edits: Any) -> None:
    path = whole.with_name("events.jsonl")
    write_events(path, read_facts(whole))
    lines = path.read_bytes().splitlines(keepends=True)
    for place, new in edits:
        at = place % len(lines)
        if isinstance(new, str):
            lines[at] = re.sub(rb"-?\d+(\.\d+)?", new.encode(), lines[at], count=1)
        else:
            lines[at] = overwritten(lines[at], [(place, new)])
    path.write_bytes(b"".join(lines))
    page_of(path)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE fact SET body = '{' WHERE number = 20", "line "),
        ("UPDATE input SET body = x'dd' WHERE number = (SELECT max(number) FROM input)", "line "),
        ("UPDATE fact SET number = 9223372036854775807 WHERE number = (SELECT max(number) FROM fact)", ""),
        ("SELECT 1", ""),
    ],
)
def test_a_line_that_cannot_be_read_is_named_and_what_is_whole_is_read_by_all(
    whole: Path, tmp_path: Path, statement: str, says: str
) -> None:
    path = Path(shutil.copy(whole, tmp_path / "journal.sqlite"))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)
    told = [refused(facts_of(path), path), page_of(path), refused(recovery_of(path), path)]
    assert any(says in words for words in told) if says else told[:2] == ["", ""]
    assert len(list(read_facts(whole))) > 50


def test_a_journal_whose_tables_are_described_in_no_text_is_refused(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "schema.sqlite"
    body, described = whole.read_bytes(), b"factfact\x05CREATE TABLE fact ("
    assert body.count(described) == 1
    path.write_bytes(body.replace(described, b"fa\xcetfact\x05CREATE TABLE fact)("))
    assert refused(facts_of(path), path) != ""
    assert page_of(path) != ""
    assert refused(recovery_of(path), path) != ""
