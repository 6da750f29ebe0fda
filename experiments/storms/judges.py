"""Judges of storms, beyond those of every virtual world: they compare the coordinator's state with the ground truth.

After each event:
- no job is on its way to a host that is known to be closed or gone, be it moved or restored there;
- a host in touch sends at the rates that the coordinator granted;
- a host in touch holds no fresher checkpoint of a job than the coordinator knows of;
- a host in touch takes its checkpoints as often as P1 planned;
- no process of a job computes that the coordinator has recorded as cancelled.

Of each fact, each order and each message:
- a fact is one that a journal takes: no number in it is infinite;
- a host that its owner closes kills its processes before it reports it;
- a process starts only under a lease, and from a checkpoint that has been on that disk;
- a host reports as finished only a job at its last step, and a job whose end was received is never dispatched again;
- an interrupted job resumes from the freshest checkpoint that a host in touch holds;
- a job that runs is stopped only for a better checkpoint, where there is one;
- every migration ordered has a fact that it was admitted, or that it only rescues the state;
- an attempt ends at no earlier step than its host has reported, and a notice is as long as its owner made it.

A host is in touch where `has_heard_everything` is true and the coordinator does not stand still.
"""

from __future__ import annotations

from controller.core.model import events as cev
from controller.core.model import facts as f
from controller.core.model.entities import OVER, HostState, JobState, Phase
from controller.persistence.journal import encoded
from experiments.worlds.virtual.ground_truth import broken, has_heard_everything
from experiments.worlds.virtual.hosts import Machine
from experiments.worlds.virtual.invariants import Invariants
from experiments.worlds.virtual.world import VirtualWorld
from testbed import messages as m
from testbed.agent.core import effects as ado
from testbed.agent.core import events as aev
from testbed.bounds import SEQUENCES_PER_ATTEMPT

LOOK_EVERY = 4  # events: what is compared while nothing is under way outlives a few


class StormJudges:
    """The judges of a storm; a world calls them after each event and with each order and report.

    InvariantBroken: a breach.
    """

    def __init__(self, world: VirtualWorld) -> None:
        self._world = world
        self.invariants = Invariants()
        self._had: set[tuple[str, str, int]] = set()  # (host, job, sequence) of what was once on that disk
        self._doubted: set[tuple[str, str]] = set()  # (job, host) whose checkpoints there failed to be of use
        self._cancelled: set[str] = set()
        self._ended: dict[str, str] = {}  # job whose end was heard -> from which host
        # (job, attempt) -> the furthest step that its host has told
        self._heard: dict[tuple[str, int], int] = {}
        self._notices: set[tuple[str, float]] = set()  # (host, seconds) as owners' agents have told
        self._admitted: set[tuple[str, int, str]] = set()  # (job, attempt, destination)

    def __call__(self, world: VirtualWorld) -> None:
        """Judge everything, now."""
        self.invariants(world)
        world = self._world
        if self._cancelled:
            for machine in world.machines.values():
                for (name, _), process in machine.processes.items():
                    if process.alive and name in self._cancelled:
                        raise broken(world, name, f"it computes on {machine.name}, and it was cancelled")
        if world.coordinator.is_resyncing or world.connections.refused:
            return
        hosts = world.coordinator.cluster.hosts
        for job in world.coordinator.cluster.jobs.unfinished:
            goes_to = job.host if job.phase is Phase.FETCHING else job.move.destination if job.move else None
            if goes_to is not None and not _is_open(hosts[goes_to]):
                raise broken(
                    world, job.name, f"it is on its way to {goes_to}, which is known to be closed or gone"
                )
        if world.events % LOOK_EVERY == 0:
            for machine in world.machines.values():
                if machine.core is not None and in_touch(world, machine):
                    self._check_known(world, machine)
                    self._check_intervals(world, machine)
                    for (name, to), sending in machine.core.sends.table.items():
                        flow = world.coordinator.cluster.flows.get(f"{name}:{machine.name}>{to}")
                        if flow is not None and flow.rate_bytes_per_s != sending.rate_bytes_per_s:
                            rate, granted = sending.rate_bytes_per_s, flow.rate_bytes_per_s
                            words = f"{machine.name} sends to {to} at {rate:.0f} bytes/s, granted are {granted:.0f}"
                            raise broken(world, name, words)

    # ------------------------------------------------------------ orders and words

    def agent_hears(self, machine: Machine, event: aev.Event) -> None:
        """Note that a checkpoint is on its disk from here on."""
        match event:
            case aev.CheckpointReceived(checkpoint) | aev.SnapshotDone(checkpoint=checkpoint):
                self._had.add((machine.name, checkpoint.job, checkpoint.sequence))

    def agent_does(self, world: VirtualWorld, machine: Machine, effect: ado.Effect) -> None:
        """Judge a process that is to start, or a message that is to be sent."""
        match effect:
            case ado.StartWorkload(spec=spec, restore=restore):
                if world.now_s >= machine.lease_until_s:
                    raise broken(world, spec.name, f"a process starts on {machine.name}, which has no lease")
                if restore and (machine.name, spec.name, restore.sequence) not in self._had:
                    words = f"it is to resume from checkpoint {restore.sequence}, which was never on the disk of {machine.name}"
                    raise broken(world, spec.name, words)
            case ado.Send(m.OwnerReclaims(notice_s=0.0)):
                alive = [process.spec.name for process in machine.processes.values() if process.alive]
                if alive:
                    words = f"{machine.name} tells that its owner has it, and kills its processes after"
                    raise broken(world, alive[0], words)
            case ado.Send(m.JobEnded(job=job, outcome="finished", step=step)):
                # one that was cut off the coordinator's journal may be submitted again as another
                steps = world.jobs[job].spec.steps if job in world.jobs else step
                if step != steps:
                    words = f"{machine.name} says that it has finished, at step {step} of {steps}"
                    raise broken(world, job, words)

    def coordinator_hears(self, world: VirtualWorld, event: cev.Event) -> None:
        """Note ends of present attempts that the coordinator receives, and forget them with their host or another restart."""
        match event:
            case cev.AgentSaid(host, m.Heartbeat(jobs=claims)):
                for claim in claims:
                    job = world.jobs.get(claim.job)
                    if job is not None and (job.attempt, job.host) == (claim.attempt, host):
                        step = min(claim.step, job.spec.steps)
                        key = (claim.job, claim.attempt)
                        self._heard[key] = max(step, self._heard.get(key, 0))
                return
            case cev.AgentSaid(host, m.OwnerReclaims(notice_s=notice_s)):
                self._notices.add((host, notice_s))
                return
            case cev.AgentSaid(host, m.Hello(ended=ended)):
                pass
            case cev.AgentSaid(host, m.JobEnded() as one):
                ended = [one]
            case cev.AgentGone(host):
                self._ended = {job: by for job, by in self._ended.items() if by != host}
                return
            case cev.Restarted():  # no connection survived: what was gathered will be said again
                self._ended = {job: by for job, by in self._ended.items() if world.jobs[job].phase in OVER}
                return
            case _:
                return
        for end in ended:
            job = world.jobs.get(end.job)
            if job is None or end.outcome != "finished" or end.step != job.spec.steps:
                continue
            if (job.attempt, job.host) == (end.attempt, host) and job.phase is not Phase.FETCHING:
                self._ended[end.job] = host

    def coordinator_tells(self, world: VirtualWorld, host: str, message: m.ToAgent) -> None:
        """Judge an order that is sent."""
        match message:
            case m.Migrate(job=name):
                moved = world.jobs[name]
                if moved.move is None or moved.move.rescue or moved.host != host:
                    return
                to = moved.move.destination
                if (name, moved.attempt, to) not in self._admitted:
                    words = f"it is ordered to move to {to}, and no fact says that this was admitted"
                    raise broken(world, name, words)
            case m.StopJob(job=name, attempt=attempt):
                job, cluster = world.jobs.get(name), world.coordinator.cluster
                if job is None or (job.host, job.attempt) != (host, attempt):
                    return
                wait = cluster.timeouts.get(name)
                asks = wait is not None and wait.holds(job) and wait.asked > 0  # what has become of it
                if job.phase is not Phase.RUNNING or job.final_sequence is not None or asks:
                    return
                steps = [
                    known.stored.step
                    for known in job.checkpoints.values()
                    if any(_is_reachable(cluster.hosts[holder]) for holder in known.holders)
                ]
                if max(steps, default=0) <= job.step:
                    raise broken(
                        world, name, f"it is stopped at step {job.step}, and no checkpoint in reach has more"
                    )

    def recorded(self, world: VirtualWorld, fact: f.Fact) -> None:
        """Judge a fact: a journal takes it, and a dispatch resumes from the freshest checkpoint of use."""
        encoded(fact)
        match fact:
            case (
                f.TransferFinished(job=job, source=host, ok=False) | f.CheckpointRefused(job=job, holder=host)
            ):
                self._doubted.add((job, host))
            case f.JobCancelled(job=job):
                self._cancelled.add(job)
            case f.MigrationAdmitted(job=job, attempt=attempt, destination=host):
                self._admitted.add((job, attempt, host))
            case f.HostReclaimed(host=host, notice_s=notice_s) if (host, notice_s) not in self._notices:
                raise broken(
                    world, host, f"its owner's notice is recorded as one of {notice_s:g} s, and none was"
                )
            case f.JobStopped(job=job, attempt=attempt, last_step=step) if step < self._heard.get(
                (job, attempt), 0
            ):
                heard = self._heard[job, attempt]
                raise broken(
                    world, job, f"attempt {attempt} ends at step {step}, and {heard} was heard of it"
                )
            case f.JobStopped(job=job, host=host, cause="failed_start"):
                self._doubted.add((job, host))
            case f.JobDispatched(job=job, host=host, restore_step=step):
                if job in self._ended:
                    raise broken(
                        world,
                        job,
                        f"it is dispatched again, and {self._ended[job]} had said that it has finished",
                    )
                self._check_freshest(world, world.jobs[job], step, host)

    # ------------------------------------------------------------ checkpoints

    def _check_freshest(self, world: VirtualWorld, job: JobState, step: int, host: str) -> None:
        if world.policy.stays or job.landing is not None:
            return  # it goes on where it was, or from what it was stopped with; a better checkpoint is taken up after
        for machine in world.machines.values():
            if machine.core is None or not world.coordinator.cluster.hosts[machine.name].usable:
                continue
            if not in_touch(world, machine):
                continue
            for stored in self._useful(machine, job):
                if stored.step > step:
                    words = f"it goes on from step {step}, and {machine.name} holds step {stored.step}"
                    raise broken(world, job.name, words)

    def _check_intervals(self, world: VirtualWorld, machine: Machine) -> None:
        """Check that an agent goes by the interval that P1 planned for a running job."""
        assert machine.core is not None
        for name, running in machine.core.running.items():
            job = world.jobs.get(name)
            if job is None or job.phase is not Phase.RUNNING or job.interval_s is None:
                continue
            if (job.host, job.attempt) != (machine.name, running.attempt):
                continue
            goes_by_s = None if running.protection is None else running.protection.interval_s
            if goes_by_s != job.interval_s:
                words = f"{machine.name} takes a checkpoint every {goes_by_s} s, planned is one every {job.interval_s} s"
                raise broken(world, name, words)

    def _check_known(self, world: VirtualWorld, machine: Machine) -> None:
        assert machine.core is not None
        for name in {job for job, _ in machine.core.stored}:
            job = world.jobs.get(name)
            if job is None or job.phase in OVER:
                continue
            known = max((c.stored.step for c in job.checkpoints.values() if c.holders), default=-1)
            for stored in self._useful(machine, job):
                if stored.step > known:
                    words = f"{machine.name} holds step {stored.step}, the coordinator knows of {known}"
                    raise broken(world, name, words)

    def _useful(self, machine: Machine, job: JobState) -> list[m.StoredCheckpoint]:
        """Return what an agent has reported to hold of a job, unless a checkpoint of it there was of no use."""
        assert machine.core is not None
        if (job.name, machine.name) in self._doubted:
            return []
        known_from = _known_from(job)
        return [
            stored
            for (name, sequence), stored in machine.core.stored.items()
            if name == job.name and sequence >= known_from and (name, sequence) in machine.store
        ]


def _known_from(job: JobState) -> int:
    """Return the least number of its checkpoints.

    Earlier ones are of a job of that name that was cut off the coordinator's could not be read.
    """
    return (job.attempts_above + 1) * SEQUENCES_PER_ATTEMPT


def _is_open(host: HostState) -> bool:
    """Return whether something may be planned there: it is connected, lent, and no notice runs."""
    return host.connected and host.lent and host.reclaim_at_s is None


def _is_reachable(host: HostState) -> bool:
    """Return whether it can send what it holds: it is connected, and not closed."""
    return host.connected and (host.lent or host.reclaim_at_s is not None)


def in_touch(world: VirtualWorld, machine: Machine) -> bool:
    """Return whether a host and the coordinator have received all that the other has sent, in order."""
    has_read = world.connections.unread is None and not world.connections.catches_up
    return has_read and has_heard_everything(world, machine)
