"""Networks of others as campuses: GraphML files, such as those of the Topology Zoo (Knight et al., IEEE JSAC 2011).

Every node becomes a switch s1, s2, ... in a building b1, b2, ... of its own, with a volunteer on it; every edge a
trunk of its `LinkSpeedRaw` (bit/s), or the file's default. Parallel edges add up, loops go, and both directions of
a directed graph are one trunk. The coordinator hangs on the switch with most trunks. Such networks have several
paths, so the fabric is Open vSwitch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from topologies import reading
from topologies.errors import SpecError
from topologies.presets import MAX_BUILDINGS, RTX3090, GpuShare, Plan
from topologies.spec import Campus, Link, Tier
from topologies.units import GBIT_PER_S

# where a file gives no rate, or one that no virtual cable can be held to (the Zoo has backbones of 100 Gbit/s and modems)
DEFAULT_RATE = GBIT_PER_S
MIN_RATE, MAX_RATE = GBIT_PER_S / 1000, 40 * GBIT_PER_S


def load(path: Path) -> Campus:
    """Return the campus of a GraphML file. SpecError: no GraphML, not connected, more than MAX_BUILDINGS nodes, or no edge."""
    import networkx

    try:
        graph = networkx.parse_graphml(reading.read_text(path, "a GraphML file"))
    except (ParseError, networkx.NetworkXException, LookupError, ValueError, TypeError, AttributeError) as error:
        raise SpecError("GraphML", path.name, f"a graph in GraphML ({error})", str(path)) from None
    names = {node: f"s{number}" for number, node in enumerate(graph.nodes, 1)}
    rates: dict[tuple[str, str], float] = {}
    default = graph.graph.get("edge_default", {})  # what the file's keys have as <default>
    for a, b, facts in graph.edges(data=True):
        ends = (names[a], names[b])
        if not graph.is_directed() and ends[::-1] in rates:
            ends = ends[::-1]
        if a != b:
            rates[ends] = rates.get(ends, 0.0) + _rate({**default, **facts})
    if not 2 <= len(names) <= MAX_BUILDINGS or not rates:
        found = f"{len(names)} nodes, {len(rates)} edges"
        raise SpecError("GraphML", found, f"2 to {MAX_BUILDINGS} nodes, and edges between them", str(path))
    parts = sorted(networkx.connected_components(graph.to_undirected(as_view=True)), key=len)
    if apart := [_shown(graph, node) for part in parts[:-1] for node in part]:
        allowed = f"one part; cut off from {_shown(graph, min(parts[-1]))}: {len(apart)} of {len(graph)} nodes"
        raise SpecError("GraphML", sorted(apart)[:20], allowed, str(path))
    plan = Plan(path.stem[:64] or "graph")
    for (a, b), rate in rates.items():
        if (b, a) not in rates or (a, b) < (b, a):
            plan.links.append(Link(a, b, max(rate, rates.get((b, a), 0.0))))
    trunks = [end for link in plan.links for end in (link.a, link.b)]
    busiest = max(names.values(), key=trunks.count)
    for number, name in enumerate(names.values(), 1):
        plan.building(f"b{number}")
        plan.switch(name, Tier.CORE if name == busiest else Tier.DISTRIBUTION)
        plan.hang(name, [(RTX3090, 1)], DEFAULT_RATE)
    try:
        return plan.mesh([GpuShare(RTX3090, 1, 1.0)], busiest, DEFAULT_RATE)
    except SpecError as error:
        raise error.within(str(path)) from None


def _shown(graph: Any, node: str) -> str:
    """Return a node as its file has it: its id, and its label if it has one."""
    label = graph.nodes[node].get("label")
    return f"{node} ({label})" if label else str(node)


def _rate(facts: Mapping[str, Any]) -> float:
    """Return the rate of an edge, bytes/s."""
    try:
        rate = float(facts["LinkSpeedRaw"]) / 8
    except (KeyError, TypeError, ValueError):
        return DEFAULT_RATE
    return min(MAX_RATE, max(MIN_RATE, rate)) if math.isfinite(rate) and rate > 0 else DEFAULT_RATE
