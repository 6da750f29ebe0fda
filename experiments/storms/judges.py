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
from experiments.worlds.virtual.hosts import Machine
from experiments.worlds.virtual.invariants import Invariants, broken, has_heard_everything
from experiments.worlds.virtual.world import VirtualWorld
from testbed import messages as m
from testbed.agent.core import effects as ado
from testbed.agent.core import events as aev
from testbed.bounds import SEQUENCES_PER_ATTEMPT
from testbed.errors import InvariantBroken

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
        self._ended: dict[str, str] = {}  # job whose end was received -> from which host
        # (job, attempt) -> the furthest step that its host has reported
        self._reported: dict[tuple[str, int], int] = {}
        self._notices: set[tuple[str, float]] = set()  # (host, seconds) as owners' agents have reported
        self._admitted: set[tuple[str, int, str]] = set()  # (job, attempt, destination)

    def _broken(self, subject: str, words: str) -> InvariantBroken:
        return broken(self._world, subject, words)

    def __call__(self, world: VirtualWorld) -> None:
        """Judge everything, now."""
        self.invariants(world)
        cluster = world.coordinator.cluster
        for machine in world.machines.values() if self._cancelled else ():
            for (name, _), process in machine.processes.items():
                if process.alive and name in self._cancelled:
                    raise self._broken(name, f"it computes on {machine.name}, and it was cancelled")
        if world.coordinator.is_resyncing or world.connections.refused:
            return
        for job in cluster.jobs.unfinished:
            goes_to = job.host if job.phase is Phase.FETCHING else job.move.destination if job.move else None
            if goes_to is not None and not _is_open(cluster.hosts[goes_to]):
                words = f"it is on its way to {goes_to}, which is known to be closed or gone"
                raise self._broken(job.name, words)
        if world.events % LOOK_EVERY:
            return
        for machine in filter(self._in_touch, world.machines.values()):
            self._check_known(machine)
            self._check_intervals(machine)
            assert machine.core is not None
            for (name, to), sending in machine.core.sends.table.items():
                flow = cluster.flows.get(f"{name}:{machine.name}>{to}")
                if flow is not None and flow.rate_bytes_per_s != sending.rate_bytes_per_s:
                    rate, granted = sending.rate_bytes_per_s, flow.rate_bytes_per_s
                    words = f"{machine.name} sends to {to} at {rate:.0f} bytes/s, granted are {granted:.0f}"
                    raise self._broken(name, words)

    # ------------------------------------------------------------ messages and orders

    def agent_receives(self, machine: Machine, event: aev.Event) -> None:
        """Note that a checkpoint is on its disk from here on."""
        match event:
            case aev.CheckpointReceived(checkpoint) | aev.SnapshotDone(checkpoint=checkpoint):
                self._had.add((machine.name, checkpoint.job, checkpoint.sequence))

    def agent_does(self, machine: Machine, effect: ado.Effect) -> None:
        """Judge a process that is to start, or a message that is to be sent."""
        world, host = self._world, machine.name
        match effect:
            case ado.StartWorkload(spec=spec, restore=restore):
                if world.now_s >= machine.lease_until_s:
                    raise self._broken(spec.name, f"a process starts on {host}, which has no lease")
                if restore and (host, spec.name, restore.sequence) not in self._had:
                    words = f"it is to resume from checkpoint {restore.sequence}, which was never on the disk of {host}"
                    raise self._broken(spec.name, words)
            case ado.Send(m.OwnerReclaims(notice_s=0.0)):
                for process in machine.processes.values():
                    if process.alive:
                        words = f"{host} reports that its owner has it, and kills its processes after"
                        raise self._broken(process.spec.name, words)
            case ado.Send(m.JobEnded(job=name, outcome="finished", step=step)) if name in world.jobs:
                # one that is not there was cut off the coordinator's journal
                if step != (steps := world.jobs[name].spec.steps):
                    raise self._broken(name, f"{host} reports it as finished, at step {step} of {steps}")

    def coordinator_receives(self, event: cev.Event) -> None:
        """Note ends of present attempts that the coordinator receives, and forget them with their host or another restart."""
        jobs, ended = self._world.jobs, list[m.JobEnded]()
        match event:
            case cev.AgentSaid(host, m.Heartbeat(jobs=claims)):
                for claim in claims:
                    job, key = jobs.get(claim.job), (claim.job, claim.attempt)
                    if job is not None and (job.attempt, job.host) == (claim.attempt, host):
                        step = min(claim.step, job.spec.steps)
                        self._reported[key] = max(step, self._reported.get(key, 0))
            case cev.AgentSaid(host, m.OwnerReclaims(notice_s=notice_s)):
                self._notices.add((host, notice_s))
            case cev.AgentSaid(host, m.Hello(ended=several)):
                ended = list(several)
            case cev.AgentSaid(host, m.JobEnded() as one):
                ended = [one]
            case cev.AgentGone(gone):
                self._ended = {job: by for job, by in self._ended.items() if by != gone}
            case cev.Restarted():  # no connection survived: what was gathered will be reported again
                self._ended = {job: by for job, by in self._ended.items() if jobs[job].phase in OVER}
        for end in ended:
            job = jobs.get(end.job)
            if job is None or end.outcome != "finished" or end.step != job.spec.steps:
                continue
            if (job.attempt, job.host) == (end.attempt, host) and job.phase is not Phase.FETCHING:
                self._ended[end.job] = host

    def coordinator_sends(self, host: str, message: m.ToAgent) -> None:
        """Judge an order that is sent."""
        cluster = self._world.coordinator.cluster
        match message:
            case m.Migrate(job=name):
                moved = cluster.jobs[name]
                if moved.move is None or moved.move.rescue or moved.host != host:
                    return
                to = moved.move.destination
                if (name, moved.attempt, to) not in self._admitted:
                    words = f"it is ordered to move to {to}, and no fact says that this was admitted"
                    raise self._broken(name, words)
            case m.StopJob(job=name, attempt=attempt):
                job = cluster.jobs.get(name)
                if job is None or (job.host, job.attempt) != (host, attempt):
                    return
                wait = cluster.timeouts.get(name)
                asks = wait is not None and wait.asked > 0  # what has become of it
                if job.phase is not Phase.RUNNING or job.final_sequence is not None or asks:
                    return
                steps = [
                    known.stored.step
                    for known in job.checkpoints.values()
                    if any(_is_reachable(cluster.hosts[holder]) for holder in known.holders)
                ]
                if max(steps, default=0) <= job.step:
                    words = f"it is stopped at step {job.step}, and no checkpoint in reach has more"
                    raise self._broken(name, words)

    def recorded(self, fact: f.Fact) -> None:
        """Judge a fact: a journal takes it, and a dispatch resumes from the freshest checkpoint of use."""
        encoded(fact)
        match fact:
            case f.TransferFinished(job=job, source=host, ok=False) | f.CheckpointRefused(job=job, holder=host):
                self._doubted.add((job, host))
            case f.JobCancelled(job=job):
                self._cancelled.add(job)
            case f.MigrationAdmitted(job=job, attempt=attempt, destination=host):
                self._admitted.add((job, attempt, host))
            case f.HostReclaimed(host=host, notice_s=notice_s) if (host, notice_s) not in self._notices:
                words = f"its owner's notice is recorded as one of {notice_s:g} s, and none was"
                raise self._broken(host, words)
            case f.JobStopped(job=job, attempt=attempt, last_step=step, host=host, cause=cause):
                if step < (reported := self._reported.get((job, attempt), 0)):
                    words = f"attempt {attempt} ends at step {step}, and {reported} was reported of it"
                    raise self._broken(job, words)
                if cause == "failed_start":
                    self._doubted.add((job, host))
            case f.JobDispatched(job=job, host=host, restore_step=step):
                if job in self._ended:
                    words = f"it is dispatched again, and {self._ended[job]} had reported that it has finished"
                    raise self._broken(job, words)
                self._check_freshest(self._world.jobs[job], step)

    # ------------------------------------------------------------ checkpoints

    def _in_touch(self, machine: Machine) -> bool:
        """Return whether a host and the coordinator have received all that the other has sent, in order."""
        there = self._world.connections
        has_read = there.unread is None and not there.catches_up
        return machine.core is not None and has_read and has_heard_everything(self._world, machine)

    def _check_freshest(self, job: JobState, step: int) -> None:
        world = self._world
        if world.policy.interruption.stays or job.landing is not None:
            return  # it goes on where it was, or from what it was stopped with; a better checkpoint is taken up after
        for machine in filter(self._in_touch, world.machines.values()):
            if world.coordinator.cluster.hosts[machine.name].usable:
                for stored in self._useful(machine, job):
                    if stored.step > step:
                        words = f"it goes on from step {step}, and {machine.name} holds step {stored.step}"
                        raise self._broken(job.name, words)

    def _check_intervals(self, machine: Machine) -> None:
        """Check that an agent goes by the interval that P1 planned for a running job."""
        assert machine.core is not None
        for name, running in machine.core.running.items():
            job = self._world.jobs.get(name)
            if job is None or job.phase is not Phase.RUNNING or job.interval_s is None:
                continue
            goes_by_s = None if running.protection is None else running.protection.interval_s
            if (job.host, job.attempt) == (machine.name, running.attempt) and goes_by_s != job.interval_s:
                words = (
                    f"{machine.name} takes a checkpoint every {goes_by_s} s, planned is one every {job.interval_s} s"
                )
                raise self._broken(name, words)

    def _check_known(self, machine: Machine) -> None:
        assert machine.core is not None
        for name in {job for job, _ in machine.core.stored}:
            job = self._world.jobs.get(name)
            if job is None or job.phase in OVER:
                continue
            known = max((c.stored.step for c in job.checkpoints.values() if c.holders), default=-1)
            for stored in self._useful(machine, job):
                if stored.step > known:
                    words = f"{machine.name} holds step {stored.step}, the coordinator knows of {known}"
                    raise self._broken(name, words)

    def _useful(self, machine: Machine, job: JobState) -> list[m.StoredCheckpoint]:
        """Return what an agent has reported to hold of a job, unless a checkpoint of it there was of no use.

        Checkpoints with lower numbers are of a job of that name that was cut off the coordinator's journal.
        """
        assert machine.core is not None
        if (job.name, machine.name) in self._doubted:
            return []
        known_from = (job.attempts_above + 1) * SEQUENCES_PER_ATTEMPT
        return [
            stored
            for (name, sequence), stored in machine.core.stored.items()
            if name == job.name and sequence >= known_from and (name, sequence) in machine.store
        ]


def _is_open(host: HostState) -> bool:
    """Return whether something may be planned there: it is connected, lent, and no notice runs."""
    return host.connected and host.lent and host.reclaim_at_s is None


def _is_reachable(host: HostState) -> bool:
    """Return whether it can send what it holds: it is connected, and not closed."""
    return host.connected and (host.lent or host.reclaim_at_s is not None)
