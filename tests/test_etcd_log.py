"""The log in etcd: a line is created once, a member that dies is not waited for, what is not known is looked up."""

import ssl
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any

import pytest

from controller.core.model import events as ev
from controller.persistence import etcd
from controller.persistence.etcd import EtcdLog
from controller.persistence.lines import Deposed, Entry, LogLine
from testbed import messages as m
from testbed.errors import SetupError
from testbed.trust.authority import Authority
from testbed.trust.channel import Credentials, Name, PartyRole
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
    first, second = members.log("1"), members.log("2")
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
    first, second = members.log("1"), members.log("2")
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
            list(members.log("3").follow(0))
        second.append([Entry(300.0, BEAT)])


def test_a_log_that_grows_is_pruned_behind_its_readers(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd, "KEPT_LINES", 10)
    first, second, third = (members.log(name) for name in "123")
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

    with closing(log):
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
    with closing(members.log("1")) as log:
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
        closing(EtcdLog([("127.0.0.1", 9)], "1", members.credentials, patience_s=0.1)) as log,
        pytest.raises(OSError, match="etcd does not"),
    ):
        list(log.follow(0))


def refused(members: Members, credentials: Credentials, said: str) -> None:
    """Fails unless a request under these credentials is refused so, at both ports of each member."""
    for port in members.ports:
        log = EtcdLog([(etcd.ADDRESS, port)], "1", credentials, patience_s=0.1)
        with closing(log), pytest.raises(OSError, match=f"etcd does not answer: .*({said})"):
            list(log.follow(0))


@pytest.mark.parametrize("role", PartyRole)
def test_no_certificate_of_a_campus_opens_the_log(members: Members, role: PartyRole) -> None:
    """Also not to one that knows the authority of the log."""
    mine = Authority.new("lab").credentials(Name("lab", role, "h1"))
    refused(members, mine, "certificate verify failed")
    refused(members, replace(mine, trusted=members.credentials.trusted), "alert|EOF|reset")
    with closing(members.log("1")) as log:
        assert list(log.follow(0)) == []


def test_nobody_reads_the_log_without_a_certificate(members: Members) -> None:
    for port in members.ports:
        plain = HTTPConnection(etcd.ADDRESS, port, timeout=5.0)
        with closing(plain), suppress(HTTPException, OSError):
            plain.request("POST", "/v3/kv/range", b"{}")
            assert plain.getresponse().status == 400
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        nameless = HTTPSConnection(etcd.ADDRESS, port, timeout=5.0, context=tls)
        with closing(nameless), pytest.raises(OSError, match=r"alert|EOF|reset"):
            nameless.request("POST", "/v3/kv/range", b"{}")
            nameless.getresponse()
