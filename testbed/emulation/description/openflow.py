"""A campus as its OpenFlow controller sees it: programmed switches, trunks between them, and each host behind a port."""

from __future__ import annotations

from testbed.emulation.description.plan import EDGE_PORT, CampusPlan
from topologies.openflow import Station, Topology, Trunk
from topologies.paths import Routes


def topology_of(plan: CampusPlan) -> Topology:
    """Return the OpenFlow part of a planned campus.

    Switches that are plain bridges, with their hosts, stand behind one port of it.
    """
    numbers = {switch.name: number for number, switch in enumerate(plan.spec.switches, 1)}
    trunks, behind = [], {name: (name, EDGE_PORT) for name, edge in plan.openflow.items() if edge}
    for cable in plan.trunks:
        ends = (cable.a, cable.b)
        programmed = [end for end in ends if end.node in plan.openflow]
        if len(programmed) == 2:
            trunks.append(Trunk(cable.a.node, cable.a.port, cable.b.node, cable.b.port, cable.link.rate_bytes_per_s))
        elif programmed:
            (bridge,) = [end for end in ends if end.node not in plan.openflow]
            behind[bridge.node] = (programmed[0].node, programmed[0].port)
    stations = []
    for name, host_cable in plan.host_cables.items():
        if host_cable.a.node in behind:
            switch, port = behind[host_cable.a.node]
            address = str(plan.spec.host_by_name[name].address)
            stations.append(Station(name, switch, port, host_cable.b.mac_text, address))
    root = Routes(plan.spec).root
    if root not in plan.openflow and plan.openflow:
        root = behind[root][0] if root in behind else next(iter(plan.openflow))
    return Topology({name: numbers[name] for name in plan.openflow}, tuple(trunks), tuple(stations), root)
