"""The log in etcd: a line is created once, a member that dies is not waited for, what is not known is looked up."""

import errno
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from controller.core.model import events as ev
from controller.core.parameters import Protocol, Queue
from controller.persistence import etcd
from controller.persistence.etcd import EtcdLog
from controller.persistence.journal import set_aside
from controller.persistence.lines import Deposed, Entry, LogLine, Missed
from controller.process import Candidate, CoordinatorConfig, _resumed
from experiments.cli.main import app
from experiments.worlds.live.installed import InstalledCoordinator
from testbed import messages as m
from testbed.trust.authority import Authority
from testbed.trust.channel import Credentials, Name, PartyRole
from tests.etcd_members import Members, etcd_members, needs_etcd
from topologies.presets import three_tier

pytestmark = [needs_etcd, pytest.mark.alone]
BEAT = ev.AgentSaid("h1", m.Heartbeat(1, [m.JobClaim("a", 1, 3)]))


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    with etcd_members(tmp_path_factory.mktemp("etcd")) as members:
        yield members


@pytest.fixture
def members(started: Members, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Members]:
    """With lines of this test's own."""
    monkeypatch.setattr(etcd, "PREFIX", request.node.name)
    yield started
    started.close_logs()


def test_who_creates_the_next_line_leads_and_the_one_before_writes_no_more(members: Members) -> None:
    first, second = members.log("1"), members.log("2")
    first.seize(1)
    assert first.append([Entry(1.0, BEAT), Entry(2.0, ev.Woke())]) == 3
    with pytest.raises(Deposed):
        second.seize(2)  # it has not read what stands
    read = [LogLine(1, 1, 0.0, None), LogLine(2, 1, 1.0, BEAT), LogLine(3, 1, 2.0, ev.Woke())]
    assert list(second.follow(0)) == read
    second.seize(2)
    for entries in ([Entry(3.0, ev.Woke())], []):
        with pytest.raises(Deposed):
            first.append(entries)
    assert second.append([]) == 5
    assert second.append([Entry(3.0, ev.Woke())]) == 6
    assert list(first.follow(3)) == [LogLine(4, 2, 0.0, None), LogLine(5, 2, 0.0, None), LogLine(6, 2, 3.0, ev.Woke())]
    assert list(first.follow(6)) == []


def test_long_logs_are_read_whole_and_what_all_have_read_is_dropped(members: Members) -> None:
    first, second = members.log("1"), members.log("2")
    first.seize(1)
    for number in range(250):
        first.append([Entry(float(number), BEAT)] * 2)
    assert [line.number for line in second.follow(0)] == list(range(1, 502))
    first.prune(first.number)
    assert len(list(second.follow(0))) == 501, "the other has not said that it read them"
    second.prune(second.number - 100)
    first.prune(first.number)
    assert [line.number for line in first.follow(401)] == list(range(402, 502))
    with pytest.raises(Missed, match="no line 1: this coordinator was away for too long"):
        list(members.log("3").follow(0))
    second.append([Entry(300.0, BEAT)])


def test_a_coordinator_that_stood_still_writes_no_line_that_was_dropped_since(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd, "KEPT_LINES", 5)
    monkeypatch.setattr(etcd, "MAX_LINES", 10)
    stopped, other = members.log("1"), members.log("2")
    stopped.seize(1)
    assert len(list(other.follow(0))) == 1
    other.seize(2)
    for number in range(40):
        other.append([Entry(float(number), BEAT)])
    with pytest.raises(Missed):
        list(stopped.follow(1))
    for write in (lambda: stopped.append([Entry(1.0, BEAT)]), lambda: stopped.seize(3)):
        with pytest.raises(Deposed):
            write()


def test_a_log_that_grows_is_pruned_behind_its_readers(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd, "KEPT_LINES", 10)
    first, second, third = (members.log(name) for name in "123")
    first.seize(1)
    for number in range(60):
        first.append([Entry(float(number), BEAT)])
    assert len(list(second.follow(0))) == 61, "nobody else has read them"
    assert list(second.follow(61)) == []
    for number in range(60, 90):
        first.append([Entry(float(number), BEAT)])
    with pytest.raises(Missed, match="no line 1"):
        list(third.follow(0))
    assert [line.number for line in second.follow(51)] == list(range(52, 92))


def test_a_write_whose_answer_is_lost_stands_once(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks after the request: it was done, or it was not."""
    log, done = members.log("1"), []
    request = etcd.HTTPSConnection.request

    def lost(self: Any, method: str, url: str, body: bytes) -> None:
        request(self, method, url, body)
        if url.endswith("txn") and len(done) < 3:
            done.append(url)
            self.getresponse().read()
            self.close()
            raise ConnectionResetError("lost")

    def unsent(self: Any, method: str, url: str, body: bytes) -> None:
        if len(done) < 6:
            done.append(url)
            raise ConnectionResetError("unsent")
        request(self, method, url, body)

    for how in (lost, unsent):
        monkeypatch.setattr(etcd.HTTPSConnection, "request", how)
        log.seize(log.epoch + 1)
        log.append([Entry(1.0, BEAT)])
    assert len(done) == 6
    assert [line.number for line in log.follow(0)] == [1, 2, 3, 4]
    other = members.log("2")
    other.number = 3  # one with the same epoch and events is still another
    with closing(other), pytest.raises(Deposed):
        other.append([Entry(1.0, BEAT)])


def test_the_death_of_etcds_leader_delays_a_line_and_loses_none(members: Members) -> None:
    log = members.log("1")
    log.seize(1)
    log.append([Entry(1.0, BEAT)])
    leader = members.leader()
    members.kill(leader)
    began_s = time.monotonic()
    try:
        log.append([Entry(2.0, BEAT)])
        took_s = time.monotonic() - began_s
    finally:
        members.start(leader)
    print(f"the line after the death of etcd's leader stood after {took_s:.2f} s")
    assert took_s < 30.0, "of 60 that it waits at most"
    assert [line.number for line in log.follow(0)] == [1, 2, 3]


def test_members_that_do_not_answer_are_named_in_an_error(members: Members) -> None:
    with (
        closing(EtcdLog([("127.0.0.1", 9)], "1", members.credentials, patience_s=0.1)) as log,
        pytest.raises(OSError, match="etcd does not"),
    ):
        list(log.follow(0))


def test_what_was_decided_does_not_pile_up_for_ever_while_no_member_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd, "WAITS_S", 0.2)
    with (
        closing(EtcdLog([("127.0.0.1", 9)], "1", etcd.log_credentials())) as log,
        pytest.raises(OSError, match="etcd does not"),
    ):
        log.append([Entry(1.0, BEAT)])


def refused(members: Members, credentials: Credentials, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails unless a request under these credentials is refused so, at both ports of each member."""
    monkeypatch.setattr(etcd, "ANSWER_S", 30.0)
    for port in members.ports:
        log = EtcdLog([(etcd.ADDRESS, port)], "1", credentials, patience_s=0.1)
        with closing(log), pytest.raises(OSError, match=f"etcd does not answer: .*({said})"):
            list(log.follow(0))


@pytest.mark.parametrize("role", PartyRole)
def test_no_certificate_of_a_campus_opens_the_log(
    members: Members, role: PartyRole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not to one that knows the authority of the log."""
    mine = Authority.new("lab").credentials(Name("lab", role, "h1"))
    refused(members, mine, "certificate verify failed", monkeypatch)
    refused(members, replace(mine, trusted=members.credentials.trusted), "alert|EOF|reset", monkeypatch)
    log = members.log("1")
    assert list(log.follow(0)) == []


def test_nobody_reads_the_log_without_a_certificate(members: Members) -> None:
    for port in members.ports:
        plain = HTTPConnection(etcd.ADDRESS, port, timeout=30.0)
        with closing(plain), suppress(HTTPException, OSError):
            plain.request("POST", "/v3/kv/range", b"{}")
            assert plain.getresponse().status == 400
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        nameless = HTTPSConnection(etcd.ADDRESS, port, timeout=30.0, context=tls)
        with closing(nameless), pytest.raises(OSError, match=r"alert|EOF|reset"):
            nameless.request("POST", "/v3/kv/range", b"{}")
            nameless.getresponse()


# ---------------------------------------------------------------- room


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Members]:
    """A member that takes 9 MB."""
    monkeypatch.setattr(etcd, "QUOTA_BYTES", 9_000_000)
    with etcd_members(tmp_path, count=1) as members:
        yield members


LARGE, MEDIUM = (ev.StrangersRefused("elsewhere", "x" * size, 1) for size in (400_000, 70_000))


@pytest.mark.parametrize("standby", [False, True])
def test_a_log_does_not_fill_though_nobody_else_reads_it(
    small: Members, monkeypatch: pytest.MonkeyPatch, standby: bool
) -> None:
    """There is no standby, or it is dead."""
    monkeypatch.setattr(etcd, "KEPT_LINES", 2)
    monkeypatch.setattr(etcd, "MAX_LINES", 5)
    log = small.log("1")
    dead = small.log("2")
    if standby:
        dead.prune(0)
    log.seize(1)
    for number in range(200):  # 14 MB, of which what was dropped last is not yet free
        log.append([Entry(float(number), MEDIUM)])
    assert 5 <= len(list(log.follow(log.number - 5))) <= 11


def test_a_log_that_is_full_says_so(small: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert etcd.alarms() == set()
    log = small.log("1")
    log.seize(1)
    with pytest.raises(OSError, match=r"etcd's quota of 9000000 bytes is spent \(its alarm NOSPACE\)") as error:
        for number in range(40):
            log.append([Entry(float(number), LARGE)])
    assert error.value.errno == errno.ENOSPC
    answer = CliRunner().invoke(app, ["doctor", "--json"])
    [row] = [each for each in json.loads(answer.stdout)["capabilities"] if each["name"] == "etcd without an alarm"]
    assert (row["present"], row["detail"]) == (False, "NOSPACE")
    monkeypatch.setattr(etcd, "PROGRAM", "another")  # its processes are passed over
    assert etcd.alarms() == set()
    mine, file = small.credentials, tmp_path / "coordinator.json"
    monkeypatch.setattr(etcd, "Service", lambda _: SimpleNamespace(kept=file))
    kept = InstalledCoordinator("", b"", small.addresses, [mine.trusted, mine.certificate, mine.key])
    file.write_bytes(msgspec.json.encode(kept))
    assert etcd.alarms() == {"NOSPACE"}


# ---------------------------------------------------------------- coordinators whose journal is gone


def candidate(members: Members, folder: Path, number: int) -> Candidate:
    """One of two coordinators, which have read what the log has."""
    journals = [folder / "journal-0.sqlite", folder / "journal-1.sqlite"]
    config = CoordinatorConfig(
        *(three_tier(1, 1, 0), Protocol(), Queue(), 1, journals[number], folder / "o.sock", etcd.ADDRESS, number),
        started_s=1.0,
        members=tuple(members.addresses),
        log_credentials=members.credentials,
        paired=True,
        follows=True,
        other_journal=journals[1 - number],
    )
    return _resumed(config)


async def looked(one: Candidate) -> tuple[int, list[tuple[float, bytes]]]:
    """What a coordinator knows once it has looked: the last line, and all facts."""
    await one._look()
    return one.replay.number, list(one.journal.facts())


@pytest.mark.parametrize("gone", ["lost", "damaged", "old"])
async def test_a_coordinator_that_missed_lines_goes_on_from_the_others_journal(
    members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """Its own journal is lost, damaged, or ends before the first line that etcd still has."""
    monkeypatch.setattr(etcd, "KEPT_LINES", 2)
    own = tmp_path / "journal-1.sqlite"
    with ExitStack() as stack:
        first = stack.enter_context(closing(candidate(members, tmp_path, 0)))
        writer = stack.enter_context(closing(members.log("writer")))
        writer.seize(1)
        writer.append([Entry(1.0, ev.StrangersRefused("10.0.0.9", "rubbish", 3))])
        if gone == "old":
            with closing(candidate(members, tmp_path, 1)) as second:
                assert (await looked(second))[0] == 2
        for number in range(2, 20):
            writer.append([Entry(float(number), ev.Woke())])
        known = await looked(first)
        assert len(known[1]) == 1
        first.log.prune(writer.number - 3)
        writer.prune(writer.number - 3)
        monkeypatch.setattr(etcd, "MAX_LINES", 3)
        writer.prune(writer.number)
        if gone == "damaged":
            own.write_bytes(b"no journal" * 1000)
        if gone == "old":
            with closing(candidate(members, tmp_path, 1)) as second, pytest.raises(Missed):
                await looked(second)
            set_aside(own)  # as its process does before it ends
        second = stack.enter_context(closing(candidate(members, tmp_path, 1)))
        assert (second.replay.number, await looked(second)) == (known[0], known)
        assert own.stat().st_mode & 0o777 == 0o600
        writer.append([Entry(30.0, ev.StrangersRefused("10.0.0.9", "again", 3))])
        assert await looked(second) == await looked(first)
        assert len((await looked(second))[1]) == 2
        assert own.with_name("journal-1.sqlite.damaged-1").exists() == (gone != "lost")
