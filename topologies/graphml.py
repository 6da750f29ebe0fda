"""Networks of others as campuses: GraphML files, such as those of the Topology Zoo (Knight et al., IEEE JSAC 2011).

Every node becomes a switch s1, s2, ... in a building b1, b2, ... of its own, with volunteers on it; every edge a trunk of its
`LinkSpeedRaw` (bit/s), where the file says one. Parallel edges become one trunk of their rates' sum, loops go. The coordinator
hangs on the switch with most trunks. Such networks have several paths, so the fabric is Open vSwitch.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from topologies import reading
from topologies.addresses import building_addresses
from topologies.errors import SpecError
from topologies.presets import MAX_BUILDINGS, ROOM, RTX3090
from topologies.spec import Building, Campus, Fabric, GpuModel, Host, Link, Role, Switch, Tier
from topologies.units import GBIT_PER_S

# where a file says no rate, or one that no virtual cable can be held to (the Zoo has backbones of 100 Gbit/s and modems)
DEFAULT_RATE = GBIT_PER_S
MIN_RATE, MAX_RATE = GBIT_PER_S / 1000, 40 * GBIT_PER_S


def load(
    path: Path,
    *,
    hosts_per_switch: int = 1,
    rate_bytes_per_s: float = DEFAULT_RATE,
    gpu_model: GpuModel = RTX3090,
) -> Campus:
    """The campus of a GraphML file. `rate_bytes_per_s`: of trunks without a rate, and of hosts' cables.

    SpecError: no GraphML, not connected, more than MAX_BUILDINGS nodes, or no edge.
    """
    import networkx

    text = reading.read_bytes(path, "a GraphML file")
    try:
        graph = networkx.parse_graphml(text)
    except (
        ParseError,
        networkx.NetworkXException,
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
    ) as error:
        raise SpecError("GraphML", path.name, f"a graph in GraphML ({error})", str(path)) from None
    names = {node: f"s{number}" for number, node in enumerate(graph.nodes, 1)}
    rates: dict[tuple[str, str], float] = {}
    for a, b, facts in graph.edges(data=True):
        if a != b:
            ends = (names[a], names[b])
            pair = ends if ends in rates or ends[::-1] not in rates else ends[::-1]
            rates[pair] = rates.get(pair, 0.0) + _rate(facts, rate_bytes_per_s)
    if not 2 <= len(names) <= MAX_BUILDINGS or not rates:
        found = f"{len(names)} nodes, {len(rates)} edges"
        raise SpecError("GraphML", found, f"2 to {MAX_BUILDINGS} nodes, and edges between them", str(path))
    trunks = [Link(a, b, rate) for (a, b), rate in rates.items()]
    count = dict.fromkeys(names.values(), 0)
    for trunk in trunks:
        count[trunk.a] += 1
        count[trunk.b] += 1
    busiest = max(count, key=lambda name: count[name])
    buildings = [Building(f"b{number}") for number in range(1, len(names) + 1)]
    switches: list[Switch] = []
    hosts: list[Host] = []
    cables: list[Link] = []
    for number, name in enumerate(names.values(), 1):
        switches.append(Switch(name, Tier.CORE if name == busiest else Tier.DISTRIBUTION, f"b{number}"))
        addresses = building_addresses(number)
        for _ in range(hosts_per_switch):
            host = Host(
                f"h{len(hosts) + 1}", f"b{number}", Role.VOLUNTEER, next(addresses), gpu_model.name, 1
            )
            hosts.append(host)
            cables.append(Link(host.name, name, rate_bytes_per_s))
    hosts.append(Host("coord", ROOM, Role.COORDINATOR, ipaddress.IPv4Address("10.0.0.1")))
    cables.append(Link("coord", busiest, rate_bytes_per_s))
    parts = ((*buildings, Building(ROOM)), tuple(hosts), tuple(switches), (*trunks, *cables), (gpu_model,))
    try:
        return Campus(path.stem[:64] or "graph", *parts, fabric=Fabric.OPENVSWITCH)
    except SpecError as error:
        raise error.within(str(path)) from None


def _rate(facts: Mapping[str, Any], otherwise: float) -> float:
    """Bytes/s of an edge."""
    try:
        rate = float(facts["LinkSpeedRaw"]) / 8
    except (KeyError, TypeError, ValueError):
        return otherwise
    return min(MAX_RATE, max(MIN_RATE, rate)) if math.isfinite(rate) and rate > 0 else otherwise
