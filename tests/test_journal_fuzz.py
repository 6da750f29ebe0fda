"""Journals and files of facts as torn disks, other versions and strangers leave them: read, or refused in words that name them.

`RECLAIMNET_FUZZ=20 RECLAIMNET_FUZZ_SEED=x` tries twenty times as many, others.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
import trio

from controller.persistence.journal import Journal, export_jsonl, read_facts
from controller.persistence.recovery import origin_of
from controller.process import CoordinatorConfig, _host
from experiments.dashboard.feed import Feed
from experiments.dashboard.sources import EventsFile, open_run
from testbed.errors import TestbedError
from tests.cores_world import PROTOCOL, QUEUE, small_campus
from tests.test_restart import SEED, a_journal

TIMES = int(os.environ.get("RECLAIMNET_FUZZ", "1"))
FUZZ_SEED = os.environ.get("RECLAIMNET_FUZZ_SEED", "14")
PORTIONS, A_PORTION = 8, 25
SAID: list[str] = []  # by three readers of each damaged journal
NUMBERS = ("NaN", "Infinity", "null", "-1", "1e999", "9" * 30, "1e308", '"x"', "[]", "{}", "true", "2.5")
ROUNDS = 6  # of `--up-to` as the error before said


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a run with a snapshot in its midst, in one file."""
    path = tmp_path_factory.mktemp("fuzz") / "journal.sqlite"
    journal, _ = a_journal(path, 12.0, save_at=0.4)
    given = PROTOCOL, replace(QUEUE, level_start=3.0)
    journal.found(origin_of(small_campus(), *given, SEED, 0.0) | {"secret": "ab" * 32})
    journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    journal.close()
    return path


# ---------------------------------------------------------------- what may have happened to a file


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Bytes flipped, cut off, doubled or put elsewhere."""
    body = bytearray(data)
    for _ in range(draw.choice((1, 1, 3, 20))):
        place = draw.randrange(len(body) + 1)
        match draw.randrange(5):
            case 0 if body:
                body[place - 1] ^= 1 << draw.randrange(8)
            case 1:
                del body[place:]
            case 2:
                body[place:place] = body[place : place + draw.randrange(1, 40)]
            case 3:
                del body[place : place + draw.randrange(1, 40)]
            case _:
                body[place:place] = draw.randbytes(draw.randrange(1, 6))
    return bytes(body)


def other_number(body: str, draw: random.Random) -> str:
    """One number of a line is another, or none."""
    numbers = list(re.finditer(r"-?\d+(\.\d+)?(e[+-]?\d+)?", body))
    if not numbers:
        return body
    found = draw.choice(numbers)
    return body[: found.start()] + draw.choice(NUMBERS) + body[found.end() :]


def change_line(db: sqlite3.Connection, draw: random.Random) -> None:
    table = draw.choice(("input", "fact"))
    numbers = [n for (n,) in db.execute(f"SELECT number FROM {table}")]
    one, other = draw.choice(numbers), draw.choice(numbers)
    at_s, body = db.execute(f"SELECT at_s, body FROM {table} WHERE number = ?", (one,)).fetchone()
    as_bytes = body.encode() if isinstance(body, str) else body
    match draw.randrange(9):
        case 0:
            new = damaged(as_bytes, draw)
            text = new.decode(errors="replace") if draw.random() < 0.7 else new
            db.execute(
                f"UPDATE {table} SET body = ? WHERE number = ?", (new if table == "input" else text, one)
            )
        case 1:
            kinds = (
                7,
                2.5,
                "",
                b"",
                "x" * 100_000,
                b"\xdd\xff\xff\xff\xff",
                b"\xc6\xff\xff\xff\xff",
                "[" * 9999,
            )
            db.execute(f"UPDATE {table} SET body = ? WHERE number = ?", (draw.choice(kinds), one))
        case 2:
            times = ("x", b"x", inf, -inf, -1.0, 1e308, at_s + 1e6, at_s / 2.0)
            db.execute(f"UPDATE {table} SET at_s = ? WHERE number = ?", (draw.choice(times), one))
        case 3:
            db.execute(f"DELETE FROM {table} WHERE number = ?", (one,))
        case 4:
            columns = "at_s, source, body" if table == "input" else "at_s, body"
            db.execute(
                f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {table} WHERE number = ?", (one,)
            )
        case 5:
            db.execute(f"UPDATE {table} SET number = -1 - number WHERE number IN (?, ?)", (one, other))
            db.execute(f"UPDATE {table} SET number = ? WHERE number = ?", (one, -1 - other))
            db.execute(f"UPDATE {table} SET number = ? WHERE number = ?", (other, -1 - one))
        case 6:
            db.execute(
                f"UPDATE {table} SET number = ? WHERE number = ?", (draw.choice((2**63 - 1, -5, 0)), one)
            )
        case 7:
            db.execute(
                f"UPDATE {table} SET body = (SELECT body FROM {table} WHERE number = ?) WHERE number = ?",
                (other, one),
            )
        case _ if table == "fact":
            db.execute("UPDATE fact SET body = ? WHERE number = ?", (other_number(body, draw), one))


def change_table(db: sqlite3.Connection, draw: random.Random) -> None:
    """Who wrote it, its snapshot, or its tables are others."""
    keys = [key for (key,) in db.execute("SELECT key FROM origin")]
    match draw.randrange(5):
        case 0:
            values = ("", "x", b"\xff", "1e999", "nan", "[]", "99", "{}")
            db.execute("UPDATE origin SET value = ? WHERE key = ?", (draw.choice(values), draw.choice(keys)))
        case 1:
            db.execute("DELETE FROM origin WHERE key = ?", (draw.choice(keys),))
        case 2:
            [(body,)] = db.execute("SELECT body FROM snapshot")
            db.execute("UPDATE snapshot SET body = ?", (damaged(body, draw),))
        case 3:
            column = draw.choice(("event", "facts", "submitted"))
            db.execute(f"UPDATE snapshot SET {column} = ?", (draw.choice((0, 3, 10**9, -1)),))
        case _:
            db.execute(f"DROP TABLE {draw.choice(('origin', 'input', 'fact', 'snapshot'))}")


def damage(path: Path, draw: random.Random) -> None:
    if draw.random() < 0.3:
        path.write_bytes(damaged(path.read_bytes(), draw))
        return
    with closing(sqlite3.connect(path)) as db, db, suppress(sqlite3.IntegrityError, sqlite3.OperationalError):
        for _ in range(draw.choice((1, 1, 2, 5))):
            (change_line if draw.random() < 0.8 else change_table)(db, draw)


# ---------------------------------------------------------------- who reads it


def refused(read: Callable[[float], object], path: Path) -> str:
    """The words of the error, empty if it can be read; what they advise helps, if only after they were heard some times."""
    said, up_to_s = "", inf
    for _ in range(ROUNDS):
        try:
            read(up_to_s)
        except TestbedError as error:
            assert str(path) in str(error) or "another coordinator" in str(error)
            assert len(str(error)) < 5000
            said = str(error)
        else:
            return said
        advice = re.search(r"`--up-to ([^`]+)`", said)
        if advice is None:
            return said
        assert float(advice[1]) < up_to_s or float(advice[1]) == 0.0, said
        up_to_s = float(advice[1])
    return said


def facts_of(path: Path) -> Callable[[float], object]:
    return lambda up_to_s: export_jsonl(path, path.with_suffix(".jsonl"), up_to_s)


def recovery_of(path: Path) -> Callable[[float], object]:
    given = PROTOCOL, replace(QUEUE, level_start=3.0)

    async def recover(journal: Journal, up_to_s: float) -> None:
        beside = path.with_suffix(".sock")
        _host(
            CoordinatorConfig(small_campus(), *given, SEED, path, beside, "127.0.0.1", up_to_s=up_to_s),
            journal,
        )

    def read(up_to_s: float) -> None:
        path.with_name(f"{path.name}.whole").unlink(missing_ok=True)
        with closing(Journal(path)) as journal:
            trio.run(recover, journal, up_to_s)

    return read


def page_of(path: Path) -> str:
    """What the live page says of the source; it is read to its end, and at a moment."""

    async def read(feed: Feed) -> None:
        await feed.run()
        if not feed.broken:
            await feed.at(feed.head.at_s / 2.0)
        feed.head.since(0)
        feed.event_log.since(0)

    try:
        source = open_run(path) if path.suffix == ".sqlite" else EventsFile(path, small_campus())
    except TestbedError as error:
        assert str(path) in str(error)
        return str(error)
    feed = Feed(source)
    trio.run(read, feed)
    assert not feed.broken or str(path) in feed.broken
    return feed.broken


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_a_damaged_journal_is_read_or_refused_in_words_that_name_file_and_line(
    whole: Path, tmp_path: Path, portion: int
) -> None:
    draw, said = random.Random(f"{FUZZ_SEED} journals {portion}"), list[str]()
    for number in range(A_PORTION * TIMES):
        path = tmp_path / f"{number}.sqlite"
        shutil.copy(whole, path)
        damage(path, draw)
        said.append(refused(facts_of(path), path))
        said.append(page_of(path))
        said.append(refused(recovery_of(path), path))
        for left in tmp_path.glob(f"{number}.*"):
            left.unlink()
    assert any("line " in words for words in said) and not all(said)
    SAID.extend(said)


def test_damage_is_of_all_kinds_what_is_read_all_the_same_and_what_is_refused_for_a_line() -> None:
    if len(SAID) < 3 * PORTIONS * A_PORTION * TIMES:
        pytest.skip("not all portions were read")
    assert sum("line " in words for words in SAID) > len(SAID) // 5
    assert sum(not words for words in SAID) > len(SAID) // 5


def test_a_damaged_file_of_facts_is_shown_or_refused_in_words_that_name_file_and_line(
    whole: Path, tmp_path: Path
) -> None:
    draw, path, said = random.Random(f"{FUZZ_SEED} lines"), tmp_path / "events.jsonl", list[str]()
    export_jsonl(whole, path)
    lines = path.read_text().splitlines(keepends=True)
    for _ in range(60 * TIMES):
        changed = list(lines)
        for _ in range(draw.choice((1, 1, 3))):
            one, other = draw.randrange(len(changed)), draw.randrange(len(changed))
            match draw.randrange(6):
                case 0:
                    changed[one] = other_number(changed[one], draw)
                case 1:
                    del changed[one]
                case 2:
                    changed.insert(one, changed[other])
                case 3:
                    changed[one], changed[other] = changed[other], changed[one]
                case _:
                    changed[one] = damaged(changed[one].encode(), draw).decode(errors="replace")
        path.write_text("".join(changed))
        said.append(page_of(path))
    assert any("line = " in words for words in said)
    assert any(not words for words in said)


def test_a_whole_journal_is_read_by_all(whole: Path, tmp_path: Path) -> None:
    path = shutil.copy(whole, tmp_path / "journal.sqlite")
    assert not refused(facts_of(path), path)
    assert not page_of(path)
    assert not refused(recovery_of(path), path)
    assert len(list(read_facts(path))) > 50


def test_a_page_reads_a_journal_to_the_largest_number_that_there_is(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "largest.sqlite"
    shutil.copy(whole, path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "UPDATE fact SET number = ? WHERE number = (SELECT max(number) FROM fact)", (2**63 - 1,)
        )
    assert page_of(path) == ""


def test_a_journal_whose_tables_are_described_in_no_text_is_refused(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "schema.sqlite"
    body, described = whole.read_bytes(), b"factfact\x05CREATE TABLE fact ("
    assert body.count(described) == 1
    path.write_bytes(body.replace(described, b"fa\xcetfact\x05CREATE TABLE fact)("))
    assert refused(facts_of(path), path) != ""
    assert page_of(path) != ""
    assert refused(recovery_of(path), path) != ""
