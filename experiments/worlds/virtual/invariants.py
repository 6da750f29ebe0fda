"""Invariants after every event of a virtual world: the state of the cores, and the machines and links as they truly are.

`Invariants` is handed to a world as `after_each`. What a journal shows is judged by `results.rules`. `GroundTruth` needs no
core: processes, disks, switches, bytes on the links. Two of its promises cannot be judged while a word is on its way: what
senders send on a link, and that they send only what the coordinator knows of. Those are held to at the moments when
nothing is under way to or from any sender concerned; a difference that outlives its messages is a rate or a flow that was
forgotten.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from math import inf

from controller.core.model import facts as f
from controller.core.model.cluster import Cluster
from controller.core.model.entities import ON_HOST, OVER, JobState, Phase
from experiments.results.run_context import migration_share
from experiments.worlds.virtual.hosts import Machine
from experiments.worlds.virtual.world import VirtualWorld
from testbed.enforcement import Enforcement
from testbed.errors import InvariantBroken
from testbed.messages import StoredCheckpoint
from topologies.spec import DirectedLink, TrafficClass

NO_FLOW = (*OVER, Phase.WAITING, Phase.STARTING, Phase.CANCELLING)
MIGRATION = (TrafficClass.PLANNED, TrafficClass.PRESYNC)
TRICKLE_BYTES_PER_S = 8192.0 + 1.0  # a flow that is granted nothing is let through as slowly as this
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Excess:
    """A period in which migrations took more of links than their share, with messages to a sender under way (payload bytes/s)."""

    from_s: float
    until_s: float
    bytes_per_s: dict[DirectedLink, float]


def broken(world: VirtualWorld, subject: str, rule: str) -> InvariantBroken:
    """Return the error, with what happened before."""
    return InvariantBroken(f"{world.now_s:.3f} s: {subject}", rule, list(world.env.story))


class GroundTruth:
    """Machines and links as they are, beside the checkpoints that facts call completed."""

    def __init__(self) -> None:
        self._read = 0  # facts
        self._steps: dict[tuple[str, int], int] = {}  # of completed checkpoints, by job and sequence
        self._reached: set[tuple[str, int]] = set()  # the same, by job and step
        self._states: dict[tuple[str, int], StoredCheckpoint] = {}
        self._closed_s: dict[tuple[str, int], float] = {}  # since when, by host and version of its switch
        self._share: dict[DirectedLink, float] = {}
        self._capacity: dict[DirectedLink, float] = {}  # that it was computed from
        self._over: dict[DirectedLink, float] = {}  # bytes/s too many, since the last look
        self._looked_s = 0.0
        self.excesses: list[Excess] = []

    def check(self, world: VirtualWorld) -> None:
        """Check all machines and links. InvariantBroken: at the first breach."""
        unseen: list[tuple[str, int]] = []  # of completed checkpoints, those not yet looked for on a disk
        for _, fact in world.facts[self._read :]:
            if isinstance(fact, f.CheckpointCompleted):
                self._steps[fact.job, fact.sequence] = fact.step
                self._reached.add((fact.job, fact.step))
                unseen.append((fact.job, fact.sequence))
        self._read = len(world.facts)
        for machine in world.machines.values():
            for (job, sequence), stored in machine.store.items():  # the same bytes wherever it is
                before = self._states.setdefault((job, sequence), stored)
                if before is not stored and before != stored:
                    rule = f"{machine.name} holds checkpoint {sequence} as {stored}, not {before}"
                    raise broken(world, job, rule)
            if machine.processes:
                self._check_processes(world, machine)
            if machine.closed:
                self._check_switch(world, machine)
        for job, sequence in unseen:  # what was completed had arrived, whole, on some disk
            held, step = self._states.get((job, sequence)), self._steps[job, sequence]
            if held is None or held.step != step:
                rule = f"checkpoint {sequence} of step {step} completes, and no disk ever held it"
                raise broken(world, job, rule)
        if self._over and world.now_s > self._looked_s:
            self.excesses.append(Excess(self._looked_s, world.now_s, self._over))
        self._over, self._looked_s = _check_links(world, self.share(world)), world.now_s

    def share(self, world: VirtualWorld) -> dict[DirectedLink, float]:
        """Return what migrations may use of each link, computed by the judge itself."""
        if self._capacity != world.env.capacity:
            campus, keeps = world.env.campus, world.policy.enforced
            self._capacity = dict(world.env.capacity)
            self._share = {
                link: migration_share(campus, rate, keeps_reserve=keeps) for link, rate in self._capacity.items()
            }
        return self._share

    def _check_processes(self, world: VirtualWorld, machine: Machine) -> None:
        alive = [process for process in machine.processes.values() if process.alive]
        gpus = world.coordinator.cluster.hosts[machine.name].spec.gpus
        if (taken := sum(process.spec.gpus for process in alive)) > gpus:
            rule = f"{len(alive)} processes compute on {taken} GPUs of {machine.name}, which has {gpus}"
            raise broken(world, alive[0].spec.name, rule)
        model = world.env.campus.gpu_by_name.get(world.env.campus.host_by_name[machine.name].gpu_model or "")
        for process in alive:
            if model is not None and process.spec.memory_bytes > model.memory_bytes:
                rule = f"it needs {process.spec.memory_bytes:.3g} bytes, a GPU of {machine.name} has {model.memory_bytes:.3g}"
                raise broken(world, process.spec.name, rule)
        for process in alive:
            name, step = process.spec.name, process.base_step
            if step == 0 or (name, step) in self._reached:
                continue
            raise broken(world, name, f"it computes from step {step}, of which no checkpoint was completed")

    def _check_switch(self, world: VirtualWorld, machine: Machine) -> None:
        """Check that a closed host's processes die once its agent has read the switch (a switch written again is read later)."""
        written = (machine.name, machine.switch_version)
        since_s = self._closed_s.setdefault(written, world.now_s)
        least_s = world.env.costs.switch_s[1] + ROUNDING
        if machine.core is None or machine.paused or machine.deferred:
            self._closed_s[written] = world.now_s  # from when it goes on
        elif world.now_s > since_s + least_s and machine.processes:
            name = next(iter(machine.processes))[0]
            raise broken(world, name, f"it computes on {machine.name}, which its owner closed at {since_s:.3f} s")


# ---------------------------------------------------------------- links


def _check_links(world: VirtualWorld, share: dict[DirectedLink, float]) -> dict[DirectedLink, float]:
    """Check that no migration goes to a closed host, and that migrations keep to their share of each link, if enforced.

    Checkpoints that may borrow are not held to it. Returns the excess on links where a sender has not received
    everything.
    """
    flows = [flow for flow in world.env.network.fluid.flows() if flow.traffic_class in MIGRATION]
    for flow in flows:
        to = next(link.target for link in reversed(flow.links) if link.target in world.machines)
        if world.machines[to].closed:
            raise broken(world, to, f"its owner closed it, and {flow.links[0].source} sends to it")
    if world.transfers.enforcement is not Enforcement.PACE or not world.policy.enforced:
        return {}
    rates = defaultdict[DirectedLink, float](float)
    unsure: set[DirectedLink] = set()
    # a coordinator that was dead when a trunk died plans on other routes until it learns that, and so does the network
    told = world.coordinator.cluster.routes.equals(world.env.routes)
    if world.policy.borrows:
        flows = [flow for flow in flows if flow.traffic_class is not TrafficClass.PRESYNC]
    for flow in flows:
        heard = told and has_heard_everything(world, world.machines[flow.links[0].source])
        for link in flow.links:
            rates[link] += max(0.0, flow.rate_bytes_per_s - TRICKLE_BYTES_PER_S)
            if not heard:
                unsure.add(link)
    over: dict[DirectedLink, float] = {}
    for link, rate in rates.items():
        if rate > share.get(link, inf) * (1.0 + ROUNDING):
            if link not in unsure:
                raise broken(world, str(link), f"migrations send {rate:.0f} bytes/s, {share[link]:.0f} may be")
            over[link] = rate - share[link]
    return over


def has_heard_everything(world: VirtualWorld, machine: Machine) -> bool:
    """Return whether an agent is connected and works, and no message is on its way to or from it or was overtaken."""
    link = machine.link
    return (
        link is not None
        and not link.overtaken
        and world.connections.is_well(machine)
        and max(link.down_s, link.up_s) < world.now_s
        and not world.connections.refused
    )


# ---------------------------------------------------------------- cores


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
    """Check that what is derived from flows is what they are."""
    rows = [flow.key for flow in known.flows.rows().flows]
    if rows != sorted(known.flows):
        raise broken(world, "flows", f"rows of {rows}, open are {sorted(known.flows)}")


def _check_offers(world: VirtualWorld, known: Cluster) -> None:
    for name, offered in Counter(offer.host for offer in known.queue.standing()).items():
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
    if known.policy.reserves_rates:
        for key, flow in known.flows.items():
            job = known.jobs[flow.job]
            to = None if job.move is None else job.move.destination
            moves = (flow.source, flow.destination) == (job.host, to)  # and is no copy that another holder sends
            if (
                moves
                and known.hosts[flow.source].connected
                and not known.routes.is_carried(known.routes.way(flow.source, flow.destination))
            ):
                raise broken(world, key, "it moves over a dead trunk")
