"""The log in etcd: a line is created once, a member that dies is not waited for, what is not known is looked up."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from controller.core.model import events as ev
from controller.persistence import etcd
from controller.persistence.etcd import EtcdLog
from controller.persistence.lines import Deposed, Entry, LogLine
from testbed import messages as m
from testbed.errors import SetupError
from tests.etcd_members import Members, etcd_members, needs_etcd

pytestmark = needs_etcd
BEAT = ev.AgentSaid("h1", m.Heartbeat(1, [m.JobClaim("a", 1, 3)]))


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    with etcd_members(tmp_path_factory.mktemp("etcd")) as members:
        yield members


@pytest.fixture
def members(started: Members, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Members:
    """With lines of this test's own."""
    monkeypatch.setattr(etcd, "PREFIX", request.node.name)
    return started


def test_who_creates_the_next_line_leads_and_the_one_before_writes_no_more(members: Members) -> None:
    first, second = EtcdLog(members.addresses, "1"), EtcdLog(members.addresses, "2")
    with closing(first), closing(second):
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
        assert list(first.follow(3)) == [
            LogLine(4, 2, 0.0, None),
            LogLine(5, 2, 0.0, None),
            LogLine(6, 2, 3.0, ev.Woke()),
        ]
        assert list(first.follow(6)) == []


def test_long_logs_are_read_whole_and_what_all_have_read_is_dropped(members: Members) -> None:
    first, second = EtcdLog(members.addresses, "1"), EtcdLog(members.addresses, "2")
    with closing(first), closing(second):
        first.seize(1)
        for number in range(250):
            first.append([Entry(float(number), BEAT)] * 2)
        assert [line.number for line in second.follow(0)] == list(range(1, 502))
        first.prune(first.number)
        assert len(list(second.follow(0))) == 501, "the other has not said that it read them"
        second.prune(second.number - 100)
        first.prune(first.number)
        assert [line.number for line in first.follow(401)] == list(range(402, 502))
        with pytest.raises(SetupError, match="no line 1: this coordinator was away for too long"):
            list(EtcdLog(members.addresses, "3").follow(0))
        second.append([Entry(300.0, BEAT)])


def test_a_log_that_grows_is_pruned_behind_its_readers(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd, "KEPT_LINES", 10)
    first, second, third = (EtcdLog(members.addresses, name) for name in "123")
    with closing(first), closing(second), closing(third):
        first.seize(1)
        for number in range(60):
            first.append([Entry(float(number), BEAT)])
        assert len(list(second.follow(0))) == 61, "nobody else has read them"
        assert list(second.follow(61)) == []
        for number in range(60, 90):
            first.append([Entry(float(number), BEAT)])
        with pytest.raises(SetupError, match="no line 1"):
            list(third.follow(0))
        assert [line.number for line in second.follow(51)] == list(range(52, 92))


def test_a_write_whose_answer_is_lost_stands_once(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks after the request: it was done, or it was not."""
    log, done = EtcdLog(members.addresses, "1"), []
    request = etcd.HTTPConnection.request

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

    with closing(log):
        for how in (lost, unsent):
            monkeypatch.setattr(etcd.HTTPConnection, "request", how)
            log.seize(log.epoch + 1)
            log.append([Entry(1.0, BEAT)])
        assert len(done) == 6
        assert [line.number for line in log.follow(0)] == [1, 2, 3, 4]
        other = EtcdLog(members.addresses, "2")
        other.number = 3  # one with the same epoch and events is still another
        with closing(other), pytest.raises(Deposed):
            other.append([Entry(1.0, BEAT)])


def test_the_death_of_etcds_leader_delays_a_line_and_loses_none(members: Members) -> None:
    with closing(EtcdLog(members.addresses, "1")) as log:
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
        assert took_s < 5.0
        assert [line.number for line in log.follow(0)] == [1, 2, 3]


def test_members_that_do_not_answer_are_named_in_an_error(members: Members) -> None:
    with (
        closing(EtcdLog([("127.0.0.1", 9)], "1", patience_s=0.1)) as log,
        pytest.raises(OSError, match="etcd does not"),
    ):
        list(log.follow(0))
