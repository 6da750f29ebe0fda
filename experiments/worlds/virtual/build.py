"""From a campus to the stage of its virtual world: machines, and a network that carries payload."""

from __future__ import annotations

from experiments.worlds.virtual.context import Stage, Streams
from experiments.worlds.virtual.egress import Egress
from experiments.worlds.virtual.faults import Faults
from experiments.worlds.virtual.fluid import Wire
from experiments.worlds.virtual.hosts import Machine
from experiments.worlds.virtual.overheads import Overheads
from experiments.worlds.virtual.scheduler import Heap
from experiments.worlds.virtual.transfers import guard_of
from testbed.enforcement import Enforcement
from testbed.model.network import FluidNetwork, Sharing
from topologies.paths import Routes
from topologies.spec import Campus, Role
from topologies.units import PAYLOAD_SHARE

SHARING = {
    Enforcement.PACE: Sharing.PRIORITY,
    Enforcement.DROP: Sharing.FAIR,
    Enforcement.NONE: Sharing.FAIR,
}


def build_stage(
    campus: Campus,
    costs: Overheads,
    faults: Faults,
    seed: int,
    enforcement: Enforcement,
    *,
    head_stores: bool = False,
    heap: Heap | None = None,
) -> Stage:
    """Machines, and a network that carries payload; each host's aggregate bucket is a link that only migrations cross.

    `head_stores`: the coordinator's machine is one of them. `heap`: its time is the stage's.
    """
    carried = {link: rate * PAYLOAD_SHARE for link, rate in campus.capacity_bytes_per_s.items()}
    if enforcement is not Enforcement.NONE:
        carried |= {guard_of(h.name): _share_bytes_per_s(campus, h.name) for h in campus.hosts}
    network, heap = FluidNetwork(carried, SHARING[enforcement]), Heap() if heap is None else heap
    agents = [h.name for h in campus.hosts if head_stores or h.role is not Role.COORDINATOR]
    machines = {name: Machine(name) for name in agents}
    wire = Wire(heap, network, Egress(network, (host.name for host in campus.hosts)))
    return Stage(campus, Routes(campus), costs, faults, Streams(seed), heap, wire, machines)


def _share_bytes_per_s(campus: Campus, host: str) -> float:
    """What migrations may take of a host's access link, payload."""
    rate = campus.access_link(host).rate_bytes_per_s
    return campus.research_reserve.migration_share_bytes_per_s(rate) * PAYLOAD_SHARE
