"""Invariants after every event of a virtual world: the state of the cores against the ground truth.

`Invariants` is handed to a world as `after_each`. What a journal shows is judged by `results.rules`; what needs no core, in
`ground_truth`.
"""

from __future__ import annotations

from collections import Counter

from controller.core.model.cluster import Cluster
from controller.core.model.entities import ON_HOST, OVER, JobState, Phase
from experiments.worlds.virtual.ground_truth import GroundTruth, broken
from experiments.worlds.virtual.world import VirtualWorld
from topologies.paths import Way

__all__ = ["Invariants", "broken"]

NO_FLOW = (*OVER, Phase.WAITING, Phase.STARTING, Phase.CANCELLING)


class Invariants:
    """The invariants of a world; raises InvariantBroken, with the world's story, at the first breach.

    `events` were checked.
    """

    def __init__(self) -> None:
        self.events = 0
        self.ground_truth = GroundTruth()

    def __call__(self, world: VirtualWorld) -> None:
        """Check everything, now."""
        self.events += 1
        known = world.coordinator.cluster
        alive: dict[str, list[str]] = {}
        for machine in world.machines.values():
            for (name, attempt), process in machine.processes.items():
                if process.alive:
                    alive.setdefault(name, []).append(f"{machine.name}#{attempt}")
        for name, copies in alive.items():
            if len(copies) > 1:
                raise broken(world, name, f"more than one copy computes: {copies}")
        self.ground_truth.check(world)
        waiting = known.queue.waiting()
        if len(set(waiting)) != len(waiting) or len(set(known.backlog)) != len(known.backlog):
            raise broken(world, "queue", f"a job waits twice: {waiting} {known.backlog}")
        queued = {*waiting, *known.backlog, *known.requeued, *known.homes}
        for job in known.jobs.values():
            _check_job(world, known, job, queued)
        _check_hosts(world, known)
        _check_derived(world, known)
        _check_offers(world, known)
        if known.routes.has_choice or world.env.routes.has_choice:
            _check_routes(world, known)
        for key, flow in known.flows.items():
            if (phase := known.jobs[flow.job].phase) in NO_FLOW:
                raise broken(world, key, f"a flow of a job that is {phase}")


def _check_job(world: VirtualWorld, known: Cluster, job: JobState, queued: set[str]) -> None:
    name, phase = job.name, job.phase
    waits = name in queued
    if waits != (phase is Phase.WAITING):
        raise broken(world, name, f"{phase}, and it {'waits' if waits else 'does not wait'}")
    if (phase in ON_HOST) != (job.host is not None):
        raise broken(world, name, f"{phase} with host {job.host}")
    if job.host is not None and name not in known.hosts[job.host].jobs:
        raise broken(world, name, f"no GPU is held for it on {job.host}")
    if (phase is Phase.MOVING) != (job.move is not None):
        raise broken(world, name, f"{phase} with move {job.move}")
    if phase is Phase.FAILED and name not in world.workloads.may_fail:
        raise broken(world, name, "it failed, and its workload never did")


def _check_hosts(world: VirtualWorld, known: Cluster) -> None:
    for host in known.hosts.values():
        if host.free_gpus < 0:
            raise broken(world, host.name, f"{host.jobs} on {host.spec.gpus} GPUs")
        for name, gpus in host.jobs.items():
            job = known.jobs[name]
            if gpus != job.spec.gpus:
                raise broken(world, name, f"it has {gpus} GPUs on {host.name}, and asked for {job.spec.gpus}")
            going = job.move is not None and job.move.destination == host.name
            is_replica = known.policy.interruption.replication is not None and job.standby == host.name
            if job.host != host.name and not going and not is_replica:
                rule = f"a GPU is held for {name}, which is {job.phase} on {job.host}"
                raise broken(world, host.name, rule)


def _check_derived(world: VirtualWorld, known: Cluster) -> None:
    """Check that what is derived from hosts and flows is what they are."""
    apart = {host.name for host in known.hosts.values() if not host.connected}
    if known.apart != apart:
        raise broken(world, "hosts", f"apart are {sorted(known.apart)}, not connected are {sorted(apart)}")
    rows = [flow.key for flow in known.flows.rows().flows]
    if rows != sorted(known.flows):
        raise broken(world, "flows", f"rows of {rows}, open are {sorted(known.flows)}")


def _check_offers(world: VirtualWorld, known: Cluster) -> None:
    standing = {offer.offer_id for offer in known.queue.standing()}
    if standing != set(known.offers):
        raise broken(world, "offers", f"queue {sorted(standing)}, book {known.offers}")
    for name, offered in Counter(known.offers.values()).items():
        host = known.hosts[name]
        if offered > host.free_gpus or not host.usable:
            raise broken(world, name, f"{offered} offers, {host.free_gpus} GPUs free")


def _check_routes(world: VirtualWorld, known: Cluster) -> None:
    """Check that the coordinator plans on the routes that packets take, unless a change of them is still on its way to it."""
    if known.capacity.wire != world.env.capacity:
        return  # it was dead meanwhile, and is about to learn of it
    there = world.connections
    if (
        known.installation.dirty
        or known.installation.confirmed < known.installation.requested
        or there.refused
        or there.unread is not None
    ):
        return  # the network is being informed, or the coordinator is dead or frozen and drains what may have been cut since
    if not known.routes.equals(world.env.routes):
        rule = f"planned on as if {sorted(map(sorted, known.routes.dead))} were dead, with ways {sorted(known.routes.pins)}"
        raise broken(world, "routes", rule)
    if world.env.switches is not None:
        for key, flow in known.flows.items():
            ends = (flow.source, flow.destination)
            if (led := world.env.way(*ends, flow.traffic_class)) != (charged := known.routes.way(*ends)):
                raise broken(
                    world, key, f"it is charged on {_nodes(charged)}, and tables lead it by {_nodes(led)}"
                )
    if known.policy.reserves_rates:
        for key, flow in known.flows.items():
            job = known.jobs[flow.job]
            to = None if job.move is None else job.move.destination
            moves = (flow.source, flow.destination) == (
                job.host,
                to,
            )  # and is no copy that another holder sends
            if (
                moves
                and known.hosts[flow.source].connected
                and not known.routes.is_carried(known.routes.way(flow.source, flow.destination))
            ):
                raise broken(world, key, "it moves over a dead trunk")


def _nodes(way: Way) -> str:
    return "-".join([*(link.source for link in way[:1]), *(link.target for link in way)])
