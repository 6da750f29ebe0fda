"""Links that the kernel's own netem delays, jitters and lets lose packets, asked back with `tc`. Skipped where it has none: there
the delay line does it (`test_delay_line`)."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from mininet.log import setLogLevel

from testbed.emulation.campus import LiveCampus
from testbed.emulation.capabilities import has_netem
from testbed.emulation.kernel.build import in_thread
from testbed.errors import SpecError
from tests.emulation_campuses import kernel, machine, small_campus
from tests.test_delay_line import least_rtt_ms, switch_of, transfer
from topologies.units import GBIT_PER_S

pytestmark = [*kernel, pytest.mark.stock_kernel]


@pytest.fixture(scope="module")
def campus() -> Iterator[LiveCampus]:
    """h1, h2, h3 are 5 ms away from their switches, each way."""
    if not has_netem():
        pytest.skip("this kernel has no netem")
    setLogLevel("error")
    before = machine()
    with LiveCampus(small_campus(3, rate_bytes_per_s=GBIT_PER_S, delay_s=0.005)) as net:
        yield net
    assert machine() == before


@pytest.fixture(autouse=True)
def _as_described(campus: LiveCampus) -> Iterator[None]:
    """Every link is as the kernel says, and described, before and after each test."""
    yield
    for host in ("h1", "h2", "h3"):
        campus.set_link(
            host, switch_of(campus, host), rate=GBIT_PER_S, delay=0.005, loss=0, jitter=0, reorders=False
        )
    in_thread(campus.kernel.read_back_fabric)
    in_thread(campus.kernel.read_back_hosts)


def netems(campus: LiveCampus, host: str) -> list[dict[str, Any]]:
    """What `tc` says of the queues that netem keeps at both ends of a host's cable: two at each."""
    found = []
    for node, end in ((host, "b"), (switch_of(campus, host), "a")):
        name = getattr(campus.plan.host_cables[host], end).name
        queues = json.loads(campus.get(node).cmd(f"tc -j qdisc show dev {name}"))
        found += [queue["options"] for queue in queues if queue["kind"] == "netem"]
    return found


def answered(campus: LiveCampus, a: str, b: str, count: int) -> int:
    """Of `count` echo requests, how many were answered."""
    text = campus.get(a).cmd(f"ping -c{count} -i0.005 -W1 -q {campus.get(b).IP()}")
    return int(text.split(" received")[0].split()[-1])


def test_packet_takes_the_declared_time_without_a_delay_line(campus: LiveCampus) -> None:
    assert campus.kernel.line.pid is None
    assert not [cable.name for cable in campus.plan.cables if cable.is_cut]
    assert [queue["delay"]["delay"] for queue in netems(campus, "h1")] == pytest.approx([0.005] * 4)
    assert 20.0 <= least_rtt_ms(campus, "h1", "h2") < 30.0


def test_delay_loss_and_rate_change_in_place_and_tc_says_the_same(campus: LiveCampus) -> None:
    campus.set_link("h1", switch_of(campus, "h1"), rate="50 Mbit/s", delay="20 ms", loss=0.25)
    for queue in netems(campus, "h1"):
        assert queue["delay"]["delay"] == pytest.approx(0.02)
        assert queue["loss-random"]["loss"] == pytest.approx(0.25, abs=1e-6)
    classes = campus.get("h1").cmd("tc class show dev h1-eth0")
    assert classes.count("ceil 50Mbit") == 3
    assert 50.0 <= least_rtt_ms(campus, "h1", "h2") < 70.0
    # there and back by a cable that loses a quarter in each direction: 9/16 of 200, and six standard deviations
    assert 112.5 - 42 < answered(campus, "h1", "h2", 200) < 112.5 + 42


def test_delay_is_taken_off_while_it_runs_and_comes_back(campus: LiveCampus) -> None:
    for host in ("h1", "h2"):
        campus.set_link(host, switch_of(campus, host), delay=0)
    assert least_rtt_ms(campus, "h1", "h2") < 5.0
    assert netems(campus, "h1")
    campus.set_link("h1", switch_of(campus, "h1"), delay="5 ms")
    assert 10.0 <= least_rtt_ms(campus, "h1", "h2") < 20.0
    assert campus.kernel.line.pid is None


def test_jitter_in_order_is_refused_on_a_cable_of_netem(campus: LiveCampus) -> None:
    with pytest.raises(SpecError, match="reorders"):
        campus.set_link("h3", switch_of(campus, "h3"), jitter="1 ms")
    with pytest.raises(SpecError, match="at most the delay"):
        campus.set_link("h3", switch_of(campus, "h3"), jitter="6 ms", reorders=True)


def test_bytes_that_cross_a_lossy_cable_are_those_that_were_sent(campus: LiveCampus) -> None:
    campus.set_link("h3", switch_of(campus, "h3"), loss=0.01)
    data = os.urandom(1 << 20) * 2
    assert transfer(campus, "h3", "h2", data) == hashlib.sha256(data).hexdigest()


def test_link_that_was_named_beforehand_is_the_delay_lines_beside_those_of_netem() -> None:
    if not has_netem():
        pytest.skip("this kernel has no netem")
    spec = small_campus(2, rate_bytes_per_s=GBIT_PER_S, delay_s=0.005)
    link = spec.access_link("h1")
    with LiveCampus(spec, enforcement=False, cut=[(link.a, link.b)]) as net:
        assert [net.plan.host_cables[host].is_cut for host in ("h1", "h2")] == [True, False]
        net.set_link(link.a, link.b, jitter="1 ms")
        assert 18.0 <= least_rtt_ms(net, "h1", "h2") < 30.0
        assert (len(netems(net, "h1")), len(netems(net, "h2"))) == (0, 4)
