"""The coordinator's process, killed and started again on its journal: same decisions, same promises, and whose journal it is."""

import errno
import os
import random
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import trio

from controller.core.coordinator import Coordinator
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts as f
from controller.core.model.facts import JobSubmitted
from controller.core.parameters import Protocol, Queue
from controller.core.policies.table import POLICIES
from controller.persistence import snapshot
from controller.persistence.journal import Journal, encoded, facts_before_damage, read_facts
from controller.persistence.lines import Entry, LogLine
from controller.persistence.recovery import JournalReplay, check_origin, origin_of, start_after
from controller.persistence.snapshot import Freezing, freeze, program, thaw
from controller.process import CoordinatorConfig, _resumed
from experiments.worlds.live.world import Restarts
from testbed import messages as m
from testbed.errors import SetupError
from tests.test_messages import Liar
from tests.world import PROTOCOL, QUEUE, World, small_campus
from topologies.spec import Campus

SEED = 4


def fresh(campus: Campus | None = None, protocol: Protocol = PROTOCOL, queue: Queue = QUEUE) -> Coordinator:
    return Coordinator(campus or small_campus(), protocol, queue, random.Random(f"{SEED} placement").random)


def a_coordinator() -> Coordinator:
    """The one of `a_journal`, as it was when the run began."""
    return fresh(queue=replace(QUEUE, level_start=3.0))


def a_journal(path: Path, seconds: float = 25.0, *, save_at: float | None = None) -> tuple[Journal, World]:
    """Of a virtual run, written as a live host would; `save_at` is the share of events after which a snapshot is saved."""
    data, world = played(seconds, save_at)
    path.write_bytes(data)
    return Journal(path), world


@cache
def played(seconds: float, save_at: float | None) -> tuple[bytes, World]:
    world = World(small_campus(), PROTOCOL, replace(QUEUE, level_start=3.0), SEED, checks=False)
    world.start()
    for number in range(8):
        spec = m.JobSpec(f"j{number}", 60 + 10 * number, 0.1, 2_000_000)
        world.at(0.5 + number, lambda spec=spec: world.submit(spec, 0.3))  # type: ignore[misc]
    world.at(6.0, lambda: world.reclaim("h1", 4.0))
    world.at(8.0, lambda: world.kill("h2"))
    world.at(9.0, lambda: world.start("h2"))
    world.at(12.0, lambda: world.reclaim("h3"))
    world.at(14.0, lambda: world.give_back("h1"))
    world.restart_coordinator(16.0, 0.3)
    world.run(seconds)
    folder = TemporaryDirectory()
    journal, again = Journal(Path(folder.name) / "j.sqlite"), world.new_coordinator()
    events, submitted = list(world.heartbeats.journal.events()), 0
    for number, (at_s, event) in enumerate(events):
        submitted += isinstance(event, ev.SubmitAsked)
        facts = [effect.fact for effect in again.handle(event, at_s) if isinstance(effect, do.Record)]
        journal.append([Entry(at_s, event, facts)])
        if save_at is not None and number == int(save_at * (len(events) - 1)):
            journal.save(journal.counts(), submitted, program(), freeze(again))
    journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    journal.close()
    with folder:
        return journal.path.read_bytes(), world


def recalled_from(journal: Journal, fresh: Coordinator) -> JournalReplay:
    """The core that wrote it."""
    replay = JournalReplay(journal, fresh)
    replay.advance()
    return replay


# ---------------------------------------------------------------- same events, same facts
def test_a_journal_read_back_leads_to_the_facts_that_it_holds(tmp_path: Path) -> None:
    journal, world = a_journal(tmp_path / "j.sqlite")
    assert list(read_facts(tmp_path / "j.sqlite")) == world.facts
    recalled = recalled_from(journal, world.new_coordinator())
    assert recalled.submitted == 8
    assert recalled.events > 100
    assert journal.last_s == pytest.approx(25.0, abs=1.0)


def test_a_coordinator_that_was_recalled_decides_on_as_the_one_that_died(tmp_path: Path) -> None:
    journal, world = a_journal(tmp_path / "j.sqlite")
    again = recalled_from(journal, world.new_coordinator()).core
    assert again.next_deadline_s() == world.coordinator.next_deadline_s()
    for at_s, event in (
        (30.0, ev.Woke()),
        (31.0, ev.SubmitAsked(m.JobSpec("new", 10, 0.1, 1_000_000), 0.1)),
        (32.0, ev.AgentSaid("h4", m.OwnerReclaims(5.0, False, []))),
        (40.0, ev.AgentGone("h4", "gone")),
    ):
        assert again.handle(event, at_s) == world.coordinator.handle(event, at_s)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_a_snapshot_and_what_came_after_it_make_the_same_coordinator(tmp_path: Path, share: float) -> None:
    journal, world = a_journal(tmp_path / "j.sqlite", save_at=share)
    recalled = recalled_from(journal, fresh())  # one that would not do
    other, _ = a_journal(tmp_path / "whole.sqlite")
    whole = recalled_from(other, world.new_coordinator())
    assert recalled.events < whole.events or share == 0.0
    assert (journal.last_s, recalled.submitted) == (other.last_s, whole.submitted)
    assert recalled.core.next_deadline_s() == whole.core.next_deadline_s()
    reclaims = ev.AgentSaid("h4", m.OwnerReclaims(5.0, False, []))
    assert recalled.core.handle(reclaims, 31.0) == whole.core.handle(reclaims, 31.0)
    assert freeze(recalled.core) is not None


ELSEWHERE = """
from pathlib import Path
from controller.persistence.journal import Journal
from tests.test_restart import a_coordinator, recalled_from
print(recalled_from(Journal(Path({path!r})), a_coordinator()).events)
"""


@pytest.mark.parametrize("save_at", [None, 0.4])
def test_another_process_decides_the_same_whatever_strings_hash_to(tmp_path: Path, save_at: float | None) -> None:
    journal, _ = a_journal(tmp_path / "j.sqlite", save_at=save_at)
    journal.close()
    told = subprocess.run(
        [sys.executable, "-c", ELSEWHERE.format(path=str(journal.path))],
        env={**os.environ, "PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],
    )
    assert told.returncode == 0, told.stderr
    assert int(told.stdout) > 50


def frozen(freezing: Freezing) -> bytes:
    """The bytes, once the fork has ended."""
    while (body := freezing.body()) is None:
        time.sleep(0.01)
    return body


def test_a_fork_freezes_the_core_as_it_was_while_the_core_decides_on(tmp_path: Path) -> None:
    core, hello = a_coordinator(), ev.AgentSaid("h1", m.Hello("h1", 1, 7200, [], [], [], True))
    freezing, expected = Freezing(core), freeze(core)
    core.handle(hello, 1.0)
    opened = len([*Path("/proc/self/fd").iterdir()])
    assert frozen(freezing) == expected != freeze(core)
    assert len([*Path("/proc/self/fd").iterdir()]) == opened - 1
    core.draw = lambda: 0.5  # type: ignore[attr-defined]
    assert frozen(Freezing(core)) == b""


def test_a_fork_that_hangs_or_cannot_be_made_gives_no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "HANGS_AFTER_S", 2)
    monkeypatch.setattr(snapshot, "freeze", lambda _: time.sleep(100.0))
    began_s, opened = time.monotonic(), len([*Path("/proc/self/fd").iterdir()])
    mine, peers = socket.socketpair()
    freezing = Freezing(a_coordinator())
    mine.close()
    assert peers.recv(1) == b"", "it hears at once that the coordinator has closed"
    assert freezing.body() is None
    peers.close()
    assert frozen(freezing) == b""
    assert time.monotonic() - began_s < 60.0

    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, "no room")

    monkeypatch.setattr(os, "fork", refused)
    assert frozen(Freezing(a_coordinator())) == b""
    assert len([*Path("/proc/self/fd").iterdir()]) == opened


def test_every_system_has_a_snapshot(tmp_path: Path) -> None:
    for policy in POLICIES:
        core = Coordinator(small_campus(), replace(PROTOCOL, policy=policy), QUEUE, random.Random(1).random)
        core.handle(ev.AgentSaid("h1", m.Hello("h1", 1, 7200, [], [], [], True)), 1.0)
        body = freeze(core)
        again = thaw(program(), body, tmp_path)
        assert again.handle(ev.Woke(), 30.0) == core.handle(ev.Woke(), 30.0)


@pytest.mark.parametrize("kind", [*get_args(ev.Event), *get_args(m.FromAgent)], ids=lambda kind: kind.__name__)
def test_every_event_comes_back_from_the_journal_as_it_was(tmp_path: Path, kind: Any) -> None:
    liar, journal = Liar(random.Random(kind.__name__)), Journal(tmp_path / "j.sqlite")
    drawn = [liar.value(kind) for _ in range(20)]
    events = drawn if kind in get_args(ev.Event) else [ev.AgentSaid("h1", message) for message in drawn]
    for number, event in enumerate(events):
        journal.append([Entry(number + 0.1, event)])
    assert list(journal.follow()) == [
        LogLine(number + 1, 0, number + 0.1, event) for number, event in enumerate(events)
    ]
    journal.close()


def test_a_journal_whose_facts_do_not_follow_from_its_events_is_refused(tmp_path: Path) -> None:
    journal, world = a_journal(tmp_path / "j.sqlite")
    journal.close()
    db = sqlite3.connect(tmp_path / "j.sqlite")
    other = encoded(f.HostReturned("h9")).decode()
    db.execute("UPDATE fact SET body = ? WHERE number = 20", (other,))
    db.commit()
    db.close()
    with pytest.raises(SetupError, match=r"decides otherwise at .* where the journal has .*h9"):
        recalled_from(Journal(tmp_path / "j.sqlite"), world.new_coordinator())


@pytest.mark.parametrize(
    ("damage", "least"),
    [
        ("UPDATE fact SET body = 'rubbish' WHERE number = 20", 1.0),  # the facts follow from the events
        ("UPDATE fact SET body = replace(body, '1', '2') WHERE number = 20", 1.0),
        ("UPDATE input SET body = x'ff' WHERE number = (SELECT max(number) / 2 FROM input)", 0.4),
        ("UPDATE origin SET value = 'rubbish' WHERE key = 'protocol'", 1.0),
        ("not a database", 0.0),
    ],
)
def test_a_coordinator_goes_on_beside_a_damaged_journal_with_what_comes_before(
    tmp_path: Path, damage: str, least: float
) -> None:
    path, queue = tmp_path / "j.sqlite", replace(QUEUE, level_start=3.0)
    journal, _ = a_journal(path)
    events, _ = journal.counts()
    journal.found(origin_of(small_campus(), PROTOCOL, queue, SEED, 1.0))
    journal.close()
    if damage == "not a database":
        path.write_bytes(b"rubbish" * 1000)
    else:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(damage)
    config = CoordinatorConfig(small_campus(), PROTOCOL, queue, SEED, path, tmp_path / "s", "127.0.0.1", started_s=1.0)

    async def resume() -> tuple[int, list[str]]:
        candidate = _resumed(config)
        with closing(candidate):
            candidate.seize()
            candidate.lead()
            assert candidate.log.epoch > 1 << 32, "no agent knows a higher one"
            kept = sum(line.event is not None for line in candidate.journal.follow())
            assert list(candidate.host.core.cluster.jobs) == [
                f.job for _, f in read_facts(path) if isinstance(f, JobSubmitted)
            ]
        return kept, facts_before_damage(path)[1]

    kept, told = trio.run(resume)
    assert least * events <= kept <= events + 1
    assert told == ["j.sqlite.damaged-1 is damaged"]
    assert (tmp_path / "j.sqlite.damaged-1").stat().st_size > 0
    assert trio.run(resume)[0] >= kept, "what was begun beside it is whole"
    assert not list(tmp_path.glob("*damaged-2*"))


async def test_a_coordinator_that_was_installed_anew_has_an_epoch_that_its_agents_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have known the one before, which began again now and then."""
    epochs, calendar_s = list[int](), count(10**9, 60)
    monkeypatch.setattr("controller.process.time", SimpleNamespace(time=lambda: next(calendar_s)))
    for folder, starts in ((tmp_path / "before", 3), (tmp_path / "anew", 1)):
        folder.mkdir()
        for _ in range(starts):
            config = CoordinatorConfig(
                small_campus(), PROTOCOL, QUEUE, SEED, folder / "j.sqlite", folder / "s", "127.0.0.1", started_s=1.0
            )
            with closing(_resumed(config)) as candidate:
                candidate.seize()
                epochs.append(candidate.log.epoch)
    assert epochs == sorted(set(epochs))


def test_what_dies_again_and_again_waits_longer_each_time_and_is_always_started_again() -> None:
    restarts, now_s, pauses = Restarts(0.3, since_s=0.0), 100.0, list[float]()
    for _ in range(8):
        restarts.died(now_s)
        pauses.append(restarts.at_s - now_s)
        assert not restarts.due(now_s)
        now_s = restarts.at_s
        assert restarts.due(now_s)
    assert pauses == pytest.approx([0.3, 0.6, 1.2, 2.4, 4.8, 9.6, 10.0, 10.0])
    restarts.died(now_s + 60.0)
    assert restarts.at_s == pytest.approx(now_s + 60.3), "it had lived"


# ---------------------------------------------------------------- whose journal it is
@pytest.mark.parametrize(
    ("theirs", "named"),
    [
        (origin_of(small_campus(), PROTOCOL, QUEUE, 2, 1.0), "seed 2, here 1"),
        (origin_of(small_campus(), replace(PROTOCOL, lease_s=9.0), QUEUE, 1, 1.0), r"lease_s = 9\.0, here 2\.0"),
        (origin_of(small_campus(), replace(PROTOCOL, policy="slurm-pr"), QUEUE, 1, 1.0), "policy = 'slurm-pr'"),
        (origin_of(small_campus(5), PROTOCOL, QUEUE, 1, 1.0), "campus: "),
        (origin_of(small_campus(7), PROTOCOL, QUEUE, 1, 1.0), "campus: "),
        ({**origin_of(small_campus(), PROTOCOL, QUEUE, 1, 1.0), "format": "1"}, "format 1, here 4"),
    ],
    ids=["seed", "lease", "policy", "smaller", "larger", "format"],
)
def test_the_journal_of_another_coordinator_is_refused_with_what_differs(theirs: dict[str, str], named: str) -> None:
    with pytest.raises(SetupError, match=named):
        check_origin(theirs, origin_of(small_campus(), PROTOCOL, QUEUE, 1, 1.0), Path("j.sqlite"))


# ---------------------------------------------------------------- time
def test_time_goes_on_from_the_same_boot_and_never_back() -> None:
    started_s = time.monotonic() - 50.0
    origin = origin_of(small_campus(), PROTOCOL, QUEUE, 1, started_s)
    assert start_after(origin, 20.0) == pytest.approx(started_s)
    before_s = time.monotonic()
    assert before_s <= start_after(origin, 1e6) + 1e6 <= time.monotonic()
