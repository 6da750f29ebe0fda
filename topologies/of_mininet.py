"""A Mininet `Topo` as a campus, so that other people's topologies lend GPUs.

Hosts, switches, links and addresses are those of the topology. Each switch stands in a building of its own (b1, b2, ...).
Each host is a volunteer with one RTX 3090, and has a CPULimitedHost's limits. Every campus has a coordinator: `coord` hangs on a
switch of its own, `room`, beside the busiest one. With loops the fabric is Open vSwitch. The ports of a switch are numbered hosts
first, switches from 1 in order (`dpid` is not used). Any other option is refused. Nothing of Mininet is imported.
"""

from __future__ import annotations

import ipaddress
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.presets import ROOM, RTX3090
from topologies.spec import SUBNET, Building, Campus, Fabric, Host, HostLimits, Link, Role, Switch, Tier
from topologies.units import GBIT_PER_S, MBIT_PER_S

UNSHAPED = 10 * GBIT_PER_S  # of a link without `bw`: Mininet leaves it to the processor
COORDINATOR = ipaddress.IPv4Address("10.255.255.254")
LIMITED_HOSTS = ("Host", "CPULimitedHost")
SHAPED_LINKS = ("Link", "TCLink", "TCULink")
ENDS = ("node1", "node2", "port1", "port2")


def from_mininet(topo: Any, rate_bytes_per_s: float = UNSHAPED) -> Campus:
    """Return the campus of a `mininet.topo.Topo`; links without `bw` get this rate.

    SpecError: an option, a name or a cable that a campus has not, and what is allowed.
    """
    switches, hosts = list(topo.switches()), list(topo.hosts())
    if taken := {"coord", ROOM} & {*switches, *hosts}:
        raise SpecError(
            type(topo).__name__, sorted(taken), "other names: each campus has a coordinator coord and a switch room"
        )
    for switch in switches:
        _only(f"switches.{switch}", topo.nodeInfo(switch), ("isSwitch", "dpid"))
        if (ports := list(topo.ports.get(switch, ()))) != list(range(1, len(ports) + 1)):
            raise SpecError(f"switches.{switch}.ports", ports, "ports as Mininet numbers them by itself")
    links = [_link(a, b, options, rate_bytes_per_s) for a, b, options in topo.links(sort=True, withInfo=True)]
    trunks = [link for link in links if not {link.a, link.b} & set(hosts)]
    degrees = Counter(end for link in trunks for end in (link.a, link.b))
    if not switches:
        raise SpecError(type(topo).__name__, [], "a topology with switches")
    busiest = max(switches, key=lambda name: degrees[name])
    building = {name: f"b{number}" for number, name in enumerate(switches, 1)}
    place = {
        end: building[other]
        for link in links
        for end, other in ((link.a, link.b), (link.b, link.a))
        if other in building
    }
    addresses = _addresses(topo, hosts)
    return Campus(
        type(topo).__name__,
        tuple(map(Building, (*building.values(), ROOM))),
        (
            *(
                Host(name, place.get(name, ROOM), Role.VOLUNTEER, addresses[name], RTX3090.name, 1, _limits(topo, name))
                for name in hosts
            ),
            Host("coord", ROOM, Role.COORDINATOR, COORDINATOR),
        ),
        (
            *(Switch(name, Tier.CORE if name == busiest else Tier.DISTRIBUTION, its) for name, its in building.items()),
            Switch(ROOM, Tier.DISTRIBUTION, ROOM),
        ),
        (*links, Link(ROOM, busiest, rate_bytes_per_s), Link("coord", ROOM, rate_bytes_per_s)),
        (RTX3090,),
        fabric=Fabric.OPENVSWITCH if len(trunks) >= len(switches) else Fabric.BRIDGE,
    )


def _addresses(topo: Any, hosts: list[str]) -> dict[str, ipaddress.IPv4Address]:
    """Return the hosts' addresses: those of the topology, or what Mininet gives them."""
    given, subnets = {}, set()
    for number, name in enumerate(hosts, 1):
        info = topo.nodeInfo(name)
        _only(f"hosts.{name}", info, ("ip", "cpu", "cores", "cls"))
        text = str(info.get("ip") or SUBNET.network_address + number)
        try:
            found = ipaddress.IPv4Interface(text if "/" in text else f"{text}/{SUBNET.prefixlen}")
        except ValueError as error:
            raise SpecError(f"hosts.{name}.ip", text, f"an IPv4 address inside {SUBNET} ({error})") from None
        given[name] = found.ip
        subnets.add(found.network)
    if len(subnets) > 1:
        raise SpecError("hosts.*.ip", sorted(map(str, subnets)), "addresses in one subnet: nothing routes between two")
    return given


def _limits(topo: Any, host: str) -> HostLimits:
    """Return the limits of a CPULimitedHost's words: `cpu` is a share of all processors, `cores` a text, a number or a list."""
    info = topo.nodeInfo(host)
    if (kind := info.get("cls")) is not None and kind.__name__ not in LIMITED_HOSTS:
        raise SpecError(f"hosts.{host}.cls", kind.__name__, f"one of {', '.join(LIMITED_HOSTS)}")
    return limits_of(info.get("cpu"), info.get("cores"))


def limits_of(cpu: float | None, cores: Any) -> HostLimits:
    """Return the limits of Mininet's words; none for a `cpu` below 0. SpecError."""
    if not isinstance(cpu, int | float | None) or isinstance(cpu, bool):
        raise SpecError("hosts.*.cpu", cpu, "a share of all processors")
    listed = ",".join(map(str, cores)) if isinstance(cores, list | tuple) else cores
    share = None if cpu is None or cpu < 0 else cpu * (os.cpu_count() or 1)
    return HostLimits(cpu=share, cores=None if listed in (None, "") else str(listed))


def _link(a: str, b: str, options: Mapping[str, Any], rate_bytes_per_s: float) -> Link:
    """Return a link of TCLink's options: Mbit/s, texts with their units, percent."""
    key = f"links.{a}-{b}"
    _only(key, options, (*ENDS, "bw", "delay", "jitter", "loss", "use_htb", "cls"))
    kind = options.get("cls")
    if kind is not None and kind.__name__ not in SHAPED_LINKS:
        raise SpecError(f"{key}.cls", kind.__name__, f"one of {', '.join(SHAPED_LINKS)}")
    times = {}
    for name in ("delay", "jitter"):
        text = options.get(name) or "0 s"
        try:
            times[f"{name}_s"] = Dimension.DURATION.units.parse(text)
        except (TypeError, ValueError):
            allowed = 'a text with its unit, such as "5ms": tc\'s releases take a number as different units'
            raise SpecError(f"{key}.{name}", text, allowed) from None
    bandwidth, loss = (options.get(name) for name in ("bw", "loss"))
    for name, value in (("bw", bandwidth), ("loss", loss)):
        if not isinstance(value, int | float | None) or isinstance(value, bool):
            raise SpecError(f"{key}.{name}", value, "a number")
    rate = rate_bytes_per_s if bandwidth is None else bandwidth * MBIT_PER_S
    return Link(a, b, rate, loss=(loss or 0) / 100, **times)


def _only(key: str, options: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    """Raise SpecError for an option with a value, other than these."""
    for name, value in options.items():
        if name not in allowed and value is not None:
            offered = ", ".join(each for each in allowed if each not in (*ENDS, "isSwitch")) or "none"
            raise SpecError(f"{key}.{name}", value, f"no such option on a campus; allowed: {offered}")
