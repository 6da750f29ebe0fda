"""Ordinary scripts of Mininet on a campus: what they get is what Mininet gives, or a message."""

import re
import select
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mininet.node import Node

from testbed.emulation.campus import LiveCampus
from testbed.errors import SetupError, SpecError
from tests.emulation_campuses import kernel, small_campus
from topologies import files

pytestmark = kernel


def test_a_command_before_the_start_is_refused_and_the_host_works_after() -> None:
    net = LiveCampus(small_campus(2))
    with pytest.raises(SetupError, match="start"):
        net["h1"].cmd("true")
    assert net["h1"].stdout is None
    with net:
        assert net["h1"].cmd("echo hi") == "hi\r\n"
    assert net["h1"].stdout is None or net["h1"].stdout.closed


def test_output_of_a_host_can_be_polled_before_its_first_command(campus: LiveCampus) -> None:
    host, poller = campus["h3"], select.poll()
    host.terminate()
    poller.register(host.stdout)
    host.sendCmd("echo hi")
    [(descriptor, _)] = poller.poll(20_000)
    assert Node.outToNode[descriptor] is host
    assert host.waitOutput() == "hi\r\n"


def test_iperf_prints_its_result_and_ends_an_iperf_of_that_host_alone(
    campus: LiveCampus, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[str] = []
    monkeypatch.setattr("testbed.emulation.campus.output", lambda *words: printed.append(" ".join(map(str, words))))
    mine, others = (campus[name].popen(["iperf", "-s"]) for name in ("h2", "h3"))
    hosts = [campus["h1"], campus["h2"]]
    for given, pattern in (
        ({}, r"\*\*\* Results: \['[\d.]+ [GM]bits/sec', '[\d.]+ [GM]bits/sec'\]\n"),
        ({"l4Type": "UDP", "udpBw": "5M"}, r"\*\*\* Results: \['5M', '[\d.]+ Mbits/sec', '[\d.]+ Mbits/sec'\]\n"),
    ):
        printed.clear()
        campus.iperf(hosts, seconds=0.3, **given)
        assert re.fullmatch(r"\*\*\* Iperf: testing (TCP|UDP) bandwidth between h1 and h2 \n", printed[0])
        assert re.fullmatch(pattern, printed[1])
    assert mine.wait(20) == -9
    assert others.poll() is None
    others.kill()
    others.wait()
    with pytest.raises(SpecError, match="TCP or UDP"):
        campus.iperf(hosts, l4Type="SCTP")


def test_a_stopped_switch_forwards_nothing_until_it_is_started(campus: LiveCampus) -> None:
    campus.configLinkStatus("h3", "s1", "down")
    campus["s1"].stop(deleteIntfs=False)  # as the command `switch s1 stop` calls it
    assert campus.ping([campus["h1"], campus["h2"]], timeout="0.3") == 100.0
    campus["s1"].start(campus.controllers)
    assert campus.ping([campus["h1"], campus["h2"]], timeout="2") == 0.0
    assert campus.ping([campus["h1"], campus["h3"]], timeout="0.3") == 100.0, "that one was down before"
    campus.configLinkStatus("h3", "s1", "up")
    assert campus.ping([campus["h1"], campus["h3"]], timeout="2") == 0.0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda net: net["h1"].intf().config(delay=5), "delay = 5: a text with its unit"),
        (lambda net: net["h1"].intf().config(delay="5 ms", jitter=0.1), "jitter = 0.1: a text with its unit"),
        (lambda net: net.runCpuLimitTest(0.5), "CPU limit"),
    ],
)
def test_what_would_mean_something_else_is_refused(
    call: Callable[[Any], object], said: str, campus: LiveCampus
) -> None:
    with pytest.raises(SetupError, match=said):
        call(campus)


def test_a_controllers_unix_socket_anywhere_is_found_and_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        listener.settimeout(20.0)
        with LiveCampus(files.load("example:twocores"), controller=f"unix:{tmp_path}/socket") as net:
            assert not net.waitConnected(timeout=0), "nobody has answered yet"
            listener.accept()[0].close()
