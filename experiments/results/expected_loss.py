"""Expected loss to emergencies: its mean over their moments, given where jobs and their copies were.

In a run the work lost to emergencies is a sum over a few moments, and most of it comes from fewer still: on paper A's
campus some fifty in two months, so that it takes hundreds of runs to distinguish two systems by it. Where owners were
drawn from a law, their hazard is known at every second. Then the same mean can be had without the luck (the compensator
of a counting process: E[sum of a(T_i)] = E[integral of a(t) lambda(t) dt] for whatever a(t) is known before t):

    sum over jobs of the integral of lambda_h(t) a(t) dt

Here lambda_h is the hazard of emergencies of the host h on which the job computes, 0 from a notice on. Its *work at
risk* a(t) is in whole steps since the newest checkpoint that is elsewhere, as `lost_time` counts the part
*emergencies*. Losses beyond that, where no host that has the newest copy can be reached, are *out of reach* here as
there, and left out. So are work taken up again from a host that comes back, and losses to notices: whether a job gets
away depends on more than the moment. Hence it stands beside the work lost, and is no part of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from controller.core.model import facts as f
from experiments.inputs.traces.reclaim_law import ReclaimLaw
from experiments.results.hazard import LentHazard
from experiments.results.history import Timed, only
from testbed.messages import SEQUENCES_PER_ATTEMPT

_TOLD = frozenset(
    (
        f.JobSubmitted,
        f.JobRunning,
        f.JobStopped,
        f.JobFinished,
        f.JobFailed,
        f.JobCancelled,
        f.CheckpointTaken,
        f.CheckpointCompleted,
        f.CheckpointHeld,
        f.ReplicaHeld,
        f.ReplicaReleased,
        f.HostJoined,
        f.HostReclaimed,
        f.HostReturned,
    )
)


def expected_emergencies_s(facts: Sequence[Timed], law: ReclaimLaw, ended_s: float) -> float:
    """Return the work that emergencies take in the mean, seconds of a GPU."""
    account = _Account(law)
    for at_s, fact in only(facts, _TOLD):
        account.until(at_s)
        account.read(fact)
    account.until(ended_s)
    account.settle_all()
    return account.lost_s


class _Collected(LentHazard):
    """Hazard that a lent host of factor 1 has collected up to `at_s`, and its moment, the integral of t over it."""

    def __init__(self, law: ReclaimLaw) -> None:
        super().__init__(law)
        self.collected = self.moment = 0.0

    def advance(self, to_s: float) -> None:
        """Collect up to then."""
        for from_s, until_s, per_s in self.pieces(to_s):
            more = per_s * (until_s - from_s)
            self.collected += more
            self.moment += more * (until_s + from_s) / 2.0


@dataclass(slots=True)
class _Job:
    """A job as of `since_s`, when so much hazard and moment had been collected. `host` None: it does not compute."""

    step_s: float
    gpus: int
    host: str | None = None
    attempt: int = 0
    work_s: float = 0.0
    kept_s: float = 0.0  # work in the newest checkpoint that is elsewhere
    since_s: float = 0.0
    collected: float = 0.0
    moment: float = 0.0
    has_replica: bool = False  # which goes on, whatever becomes of its host
    completed: dict[int, int] = field(default_factory=dict)  # checkpoint -> step


class _Account:
    """A journal read in order. Whatever changes a job's work at risk settles first what it was up to then."""

    def __init__(self, law: ReclaimLaw) -> None:
        self.lost_s = 0.0
        self._hazard = _Collected(law)
        self._jobs: dict[str, _Job] = {}
        self._on: dict[str, set[str]] = {}  # host -> jobs that compute there
        # when jobs that had to begin from less than is kept elsewhere will have come as far, a heap
        self._level_s: list[tuple[float, str]] = []

    def until(self, at_s: float) -> None:
        """Collect up to then."""
        while self._level_s and self._level_s[0][0] <= at_s:
            level_s, name = heapq.heappop(self._level_s)
            self._hazard.advance(level_s)
            self._settle(self._jobs[name])
        self._hazard.advance(at_s)

    def settle_all(self) -> None:
        """Count what is still open."""
        for job in self._jobs.values():
            self._settle(job)

    def read(self, fact: f.AnyFact) -> None:
        """Apply a fact."""
        match fact:
            case f.JobSubmitted(job=name, step_s=step_s, gpus=gpus):
                self._jobs.setdefault(name, _Job(step_s, gpus))
            case f.HostJoined(host=host, lent=lent):
                self._lend(host, lent=lent)
            case f.HostReclaimed(host=host):
                self._lend(host, lent=False)
            case f.HostReturned(host=host):
                self._lend(host, lent=True)
            case _ if (job := self._jobs.get(name := getattr(fact, "job", ""))) is not None:
                self._settle(job)
                before = job.host
                self._read_of_job(job, fact)
                if job.host != before:
                    self._on.get(before or "", set()).discard(name)
                    self._on.setdefault(job.host or "", set()).add(name)
                if job.host is not None and job.work_s < job.kept_s:
                    heapq.heappush(self._level_s, (job.since_s + job.kept_s - job.work_s, name))

    def _read_of_job(self, job: _Job, fact: f.AnyFact) -> None:
        match fact:
            case f.JobRunning(host=host, attempt=attempt, step=step):
                job.host, job.attempt, job.work_s, job.has_replica = host, attempt, step * job.step_s, False
            case f.CheckpointTaken(step=step) if job.host is not None:
                job.work_s = step * job.step_s  # and it has stood still meanwhile
            case f.CheckpointCompleted(sequence=number, step=step, holder=holder):
                job.completed[number] = step
                self._keep(job, number, holder)
            case f.CheckpointHeld(sequence=number, holder=holder):
                self._keep(job, number, holder)
            case f.ReplicaHeld():
                job.has_replica = True
            case f.ReplicaReleased():
                job.has_replica = False
            case f.JobStopped() | f.JobFinished() | f.JobFailed() | f.JobCancelled():
                job.host = None

    @staticmethod
    def _keep(job: _Job, number: int, holder: str) -> None:
        """Note that a holder has a checkpoint: it is elsewhere, unless it is of the attempt that runs on that holder."""
        if holder != job.host or number // SEQUENCES_PER_ATTEMPT != job.attempt:
            job.kept_s = max(job.kept_s, job.completed.get(number, 0) * job.step_s)

    def _settle(self, job: _Job) -> None:
        hazard = self._hazard
        if job.host is not None:
            if job.work_s >= job.kept_s and not job.has_replica:
                # the step under way is no work yet: half of one in the mean
                at_risk_s = job.work_s - job.kept_s - job.step_s / 2.0
                collected, moment = hazard.collected - job.collected, hazard.moment - job.moment
                lost_s = hazard.factor(job.host) * (moment + (at_risk_s - job.since_s) * collected)
                self.lost_s += lost_s * job.gpus
            job.work_s += hazard.at_s - job.since_s
        job.since_s, job.collected, job.moment = hazard.at_s, hazard.collected, hazard.moment

    def _lend(self, host: str, *, lent: bool) -> None:
        for name in sorted(self._on.get(host, ())):
            self._settle(self._jobs[name])
        self._hazard.lend(host, lent=lent)
