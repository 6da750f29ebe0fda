"""The journal: what was committed survives, what was not does not appear."""

import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Thread

import pytest
import trio

from controller.core.model import events as ev
from controller.core.model import facts
from controller.core.model.facts import JobFailed
from controller.persistence import journal as journals
from controller.persistence.etcd import EtcdLog
from controller.persistence.group_commit import MAX_BYTES, MAX_EVENTS, GroupCommit
from controller.persistence.journal import Journal, read_facts
from controller.persistence.lines import Deposed, Entry, LogLine
from experiments.results.events_file import write_events
from testbed.errors import SetupError
from testbed.trust.authority import Authority
from testbed.trust.channel import Name, PartyRole
from tests.patience import until


def test_open_transaction_of_a_killed_writer_is_undone(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    child = os.fork()
    if child == 0:
        journal = Journal(path)
        journal.append([Entry(1.0, ev.Woke(), [facts.HostReturned("h1")])])

        def half() -> Iterator[Entry]:
            yield Entry(2.0, ev.Woke(), [facts.HostReturned("h2")])
            os.kill(os.getpid(), signal.SIGKILL)

        journal.append(half())
    os.waitpid(child, 0)
    assert [fact for _, fact in read_facts(path)] == [facts.HostReturned("h1")]


@pytest.mark.parametrize("folder", ["50%41", "a#b", "why?mode=rwc"])
def test_a_journal_is_found_whatever_its_folder_is_called(tmp_path: Path, folder: str) -> None:
    path, copied = tmp_path / folder / "j.sqlite", tmp_path / folder / "copied.sqlite"
    path.parent.mkdir()
    with closing(Journal(path)) as journal:
        journal.append([Entry(1.0, ev.Woke(), [facts.HostReturned("h1")])])
        journals.begin_as(path, copied)
        assert [list(read_facts(each)) for each in (path, copied)] == [[(1.0, facts.HostReturned("h1"))]] * 2


def test_log_beside_it_is_carried_in_by_another_thread_in_the_midst_of_an_event(tmp_path: Path) -> None:
    path, facts_at_once = tmp_path / "j.sqlite", 100_000
    journal = Journal(path)
    journal.fold_elsewhere()
    journal.append([Entry(1.0, ev.Woke(), [facts.HostReturned(f"h{number}") for number in range(facts_at_once)])])
    log_bytes = path.with_name("j.sqlite-wal").stat().st_size
    assert log_bytes > 4 << 20 > path.stat().st_size  # no commit has carried it in
    assert sum(1 for _ in read_facts(path)) == facts_at_once

    def meanwhile() -> Iterator[Entry]:
        yield Entry(2.0, ev.Woke(), [facts.HostReturned("last")])
        thread = Thread(target=journal.fold_in)
        thread.start()
        thread.join()
        assert path.stat().st_size > 2 << 20

    journal.append(meanwhile())
    assert [fact for at_s, fact in read_facts(path) if at_s == 2.0] == [facts.HostReturned("last")]
    journal.fold_in()
    journal.append([Entry(3.0, ev.Woke(), [facts.HostReturned("more")])])  # all is carried in: the log begins anew
    assert path.with_name("j.sqlite-wal").stat().st_size <= log_bytes + (64 << 10)
    journal.close()
    assert sum(1 for _ in read_facts(path)) == facts_at_once + 2


def test_a_reader_that_stands_still_holds_no_writer_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that follows, and reads a long journal at once when it starts."""
    monkeypatch.setattr(journals, "LONGEST_LOG_PAGES", 0)
    journal = Journal(tmp_path / "j.sqlite")
    journal.fold_elsewhere()
    journal.append([Entry(1.0, ev.Woke(), [facts.HostReturned("h1")])])
    with closing(Journal(tmp_path / "j.sqlite")) as reader, reader.at_once():
        assert len([*reader.follow()]) == 1
        journal.append([Entry(2.0, ev.Woke(), [facts.HostReturned("h1")])])
        carrier = threading.Thread(target=journal.fold_in)
        carrier.start()
        time.sleep(0.2)
        began_s = time.monotonic()
        journal.append([Entry(3.0, ev.Woke(), [facts.HostReturned("h1")])])
        assert time.monotonic() - began_s < 4.0, "of 5"
        carrier.join()
    journal.close()


def test_the_log_beside_a_journal_stays_short_however_much_is_written_while_it_is_carried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that never pauses, and a carrier that is never alone with the log: 296 MB lay beside a journal of 11."""
    monkeypatch.setattr(journals, "LONGEST_LOG_PAGES", 100)
    journal, log = Journal(tmp_path / "j.sqlite"), tmp_path / "j.sqlite-wal"
    journal.fold_elsewhere()
    over = threading.Event()

    def carry() -> None:
        while not over.wait(0.01):
            journal.fold_in()

    carrier = threading.Thread(target=carry)
    carrier.start()
    for number in range(3000):
        journal.append([Entry(float(number), ev.Woke(), [facts.HostReturned("h" * 64)])])
        time.sleep(0.0003)
    over.set()
    carrier.join()
    assert log.stat().st_size < 8 << 20, "of 25"
    journal.close()
    assert sum(1 for _ in read_facts(tmp_path / "j.sqlite")) == 3000


def test_exported_lines_name_the_fact_and_its_time(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    journal.append([Entry(0.25, ev.Woke(), [facts.HostReturned("h1")])])
    journal.close()
    write_events(tmp_path / "e.jsonl", read_facts(tmp_path / "j.sqlite"))
    assert json.loads((tmp_path / "e.jsonl").read_text()) == {"at_s": 0.25, "fact": "HostReturned", "host": "h1"}


# ---------------------------------------------------------------- a line that cannot be read
def written(path: Path, some: list[tuple[float, facts.AnyFact]]) -> Path:
    """A journal with these facts, an event before each."""
    journal = Journal(path)
    for at_s, fact in some:
        journal.append([Entry(at_s, ev.Woke(), [fact])])
    journal.close()
    return path


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """A journal of three facts, the second of which holds what an earlier version wrote for infinity."""
    levels = [(float(n), facts.LevelLearned(float(n))) for n in (1, 2, 3)]
    path = written(tmp_path / "j.sqlite", levels)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE fact SET body = replace(body, '2.0', 'null') WHERE number = 2")
    return path


def test_an_export_says_which_line_cannot_be_read_and_leaves_no_file(torn: Path, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"line 2 of the table fact, at 2\.0 s, cannot be read"):
        write_events(tmp_path / "e.jsonl", read_facts(torn))
    assert not (tmp_path / "e.jsonl").exists()


def test_who_writes_the_next_line_leads_and_the_one_before_writes_no_more(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    first, second = Journal(path), Journal(path)
    first.seize(1)
    first.append([Entry(1.0, ev.Woke(), [facts.LevelLearned(1.0)])])
    with pytest.raises(Deposed):
        second.seize(2)  # it has not read what stands
    read = list(second.follow())
    assert read == [LogLine(1, 1, 0.0, None), LogLine(2, 1, 1.0, ev.Woke())]
    second.seize(2)
    for deposed in (lambda: first.append([Entry(2.0, ev.Woke(), [facts.LevelLearned(2.0)])]), lambda: first.append([])):
        with pytest.raises(Deposed):
            deposed()
    with pytest.raises(Deposed):
        first.save(first.counts(), 0, "program", b"core")
    second.append([])
    second.append([Entry(3.0, ev.Woke(), [facts.LevelLearned(3.0)])])
    assert [(line.number, line.epoch, line.at_s) for line in first.follow(2)] == [(3, 2, 1.0), (4, 2, 1.0), (5, 2, 3.0)]
    assert [fact for _, fact in read_facts(path)] == [facts.LevelLearned(1.0), facts.LevelLearned(3.0)]
    first.close()
    second.close()


async def test_a_slow_log_takes_events_in_bounded_batches_and_nothing_follows_before_they_stand(tmp_path: Path) -> None:
    batches, stood = list[tuple[int, int]](), list[int]()

    class Slow(EtcdLog):
        def append(self, entries: Iterable[Entry]) -> int:
            batches.append((len(list(entries)), len(stood)))
            return 0

    one = Authority.new("a").credentials(Name("a", PartyRole.COORDINATOR, "one"))
    commit = GroupCommit(Slow([], "one", one), Journal(tmp_path / "j.sqlite"), lambda _: None)
    reasons = [*["soon"] * (MAX_EVENTS + 1), "late" * MAX_BYTES, "soon"]
    for number, entry in enumerate([*(Entry(1.0, ev.AgentGone("h1", reason)) for reason in reasons), None]):
        commit.add(entry, partial(stood.append, number))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit.write_all, 60.0)
        await until(lambda: commit.idle and len(stood) > len(reasons))
        nursery.cancel_scope.cancel()
    assert batches == [(MAX_EVENTS, 0), *((1, MAX_EVENTS + stand) for stand in range(3))]
    assert stood == sorted(stood)


def test_a_line_that_is_missing_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "j.sqlite", [(float(n), facts.LevelLearned(float(n))) for n in (1, 2, 3)])
    for number, after in ((2, 0), (3, 3)):
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("DELETE FROM input WHERE number = ?", (number,))
        with closing(Journal(path)) as journal, pytest.raises(SetupError, match=f"line {number} of the table input"):
            list(journal.follow(after))


def test_a_full_disk_names_the_journal_which_keeps_what_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    journal._db.execute("PRAGMA max_page_count = 20")
    written = 0
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        while True:
            journal.append([Entry(float(written), ev.Woke(), [JobFailed("a", 1, "h1", "x" * 1000)])])
            written += 1
    journal.close()
    assert len(list(read_facts(path))) == written > 0
