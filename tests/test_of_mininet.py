"""Topologies of Mininet as campuses."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mininet.link import TCLink
from mininet.topo import LinearTopo, SingleSwitchReversedTopo, SingleSwitchTopo, Topo
from mininet.topolib import TorusTopo, TreeTopo

from testbed import Campus
from testbed.emulation.description.plan import plan
from testbed.errors import SetupError, SpecError
from topologies import files, from_mininet
from topologies.spec import Fabric, Role
from topologies.units import GBIT_PER_S, MBIT_PER_S


def built(
    host: dict[str, Any] | None = None, link: dict[str, Any] | None = None, name: str = "s2", **switch: Any
) -> Topo:
    """Return s1 and another switch with a host each, of these options."""
    topo = Topo()
    topo.addLink(topo.addHost("h1", **host or {}), topo.addSwitch("s1", **switch), **link or {})
    topo.addLink(topo.addHost("h2"), topo.addSwitch(name))
    topo.addLink("s1", name)
    return topo


@pytest.mark.parametrize("topo", [SingleSwitchTopo(3), LinearTopo(3, 2), TreeTopo(2, 3), TorusTopo(3, 3)])
def test_nodes_links_addresses_and_ports_are_mininets_and_a_coordinator_stands_apart(topo: Topo) -> None:
    campus = from_mininet(topo)
    volunteers = [host for host in campus.hosts if host.role is Role.VOLUNTEER]
    assert [host.name for host in volunteers] == topo.hosts()
    assert [int(host.address) for host in volunteers] == [(10 << 24) + n for n in range(1, len(volunteers) + 1)]
    assert [switch.name for switch in campus.switches] == [*topo.switches(), "room"]
    apart = {link for link in campus.links if "room" in (link.a, link.b)}
    assert [{link.a, link.b} for link in campus.links if link not in apart] == list(map(set, topo.links(sort=True)))
    assert campus.access_link("coord").b == "room"
    assert {link.rate_bytes_per_s for link in campus.links} == {10 * GBIT_PER_S}
    assert campus.fabric is (Fabric.OPENVSWITCH if isinstance(topo, TorusTopo) else Fabric.BRIDGE)
    if isinstance(topo, SingleSwitchTopo | LinearTopo):
        ends = {frozenset((c.a.node, c.b.node)): c for c in (*plan(campus).host_cables.values(), *plan(campus).trunks)}
        for a, b in topo.links():
            cable = ends[frozenset((a, b))]
            wanted = dict(zip((a, b), topo.port(a, b), strict=True))
            assert wanted == {cable.a.node: cable.a.port, cable.b.node: cable.b.port}


def test_options_of_links_and_addresses_are_taken() -> None:
    topo = built({"ip": "10.0.7.9/8"}, {"bw": 20, "delay": "5ms", "jitter": "1ms", "loss": 2, "cls": TCLink}, dpid="7")
    campus = from_mininet(topo, rate_bytes_per_s=GBIT_PER_S)
    assert [str(host.address) for host in campus.hosts][:2] == ["10.0.7.9", "10.0.0.2"]
    link, other = campus.access_link("h1"), campus.access_link("h2")
    assert (link.rate_bytes_per_s, link.delay_s, link.jitter_s, link.loss) == (20 * MBIT_PER_S, 0.005, 0.001, 0.02)
    assert (other.rate_bytes_per_s, other.delay_s) == (GBIT_PER_S, 0.0)


@pytest.mark.parametrize(
    ("topo", "said"),
    [
        (Topo(), r"Topo = \[\]: a topology with switches"),
        (SingleSwitchReversedTopo(3), r"s1\.ports = \[3, 2, 1\]"),
        (built({"privateDirs": ["/var"]}), r"hosts\.h1\.privateDirs = .*allowed: ip"),
        (built({"ip": "10.0.0.1/24"}), "one subnet"),
        (built({"ip": "192.168.0.1"}), "10.0.0.0/8"),
        (built({"ip": "h1"}), "an IPv4 address"),
        (built(stp=True), r"switches\.s1\.stp = True.*allowed: dpid"),
        (built(link={"delay": 5}), r"links\.h1-s1\.delay = 5: a text with its unit"),
        (built(link={"bw": "10"}), r"links\.h1-s1\.bw = '10': a number"),
        (built(link={"max_queue_size": 9}), "max_queue_size = 9.*allowed: bw, delay, jitter, loss"),
        (built(name="Switch_1"), "1 to 9 lower-case letters"),
        (built(name="room"), r"\['room'\]: other names: each campus has a coordinator"),
    ],
)  # fmt: skip
def test_what_a_campus_is_not_is_refused(topo: Topo, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        from_mininet(topo)


def test_a_campus_is_made_from_a_topology_a_name_or_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(Campus(SingleSwitchTopo(3)).hosts) == 4
    assert len(Campus("example:twocores").switches) == 4
    (tmp_path / "mytopo.py").write_text("from mininet.topo import MinimalTopo as Mine\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert files.load("mytopo:Mine") == replace(from_mininet(SingleSwitchTopo(2)), name="MinimalTopo")


@pytest.mark.parametrize(
    ("given", "named", "said"),
    [
        ((), {}, r"or a mininet\.topo\.Topo"),
        ((SingleSwitchTopo,), {}, r"or a mininet\.topo\.Topo"),
        ((), {"topo": SingleSwitchTopo(2)}, r"\['topo'\]: no such argument: Campus\(TOPO\)"),
        ((SingleSwitchTopo(2),), {"link": TCLink, "host": None}, r"\['host', 'link'\]: no such argument"),
        ((SingleSwitchTopo(2),), {"controller": TCLink}, "a text such as tcp:"),
    ],
)
def test_what_is_no_campus_is_refused_in_words(given: tuple[Any, ...], named: dict[str, Any], said: str) -> None:
    with pytest.raises((SpecError, SetupError), match=said):
        Campus(*given, **named)


def test_a_link_is_up_or_not() -> None:
    with pytest.raises(SpecError, match=r"links\.h1-s1\.up = 'no': true or false"):
        Campus(SingleSwitchTopo(2)).set_link("h1", "s1", up="no")  # type: ignore[arg-type]
