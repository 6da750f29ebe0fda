"""A second reading of lost GPU time, off the facts alone: `experiments.results.lost_time` must come to the same, job by job."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from controller.core.model import facts as f
from experiments.results import rules
from experiments.results.history import Timed, end_s, tries_of
from experiments.results.losses import work_lost
from experiments.results.lost_time import balances
from experiments.results.rules.breach import RATE_TOLERANCE, ROUNDING_S, Breach
from experiments.results.run_context import RunContext
from testbed.messages import SEQUENCES_PER_ATTEMPT


def lives_are_accounted_for(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """A life is from the first dispatch to the end of the job, with its replica's. The end of the run stands in for that of a job
    that waits then, the latest snapshot for that of one that runs."""
    ended_s = end_s(facts, context.ended_at_s)
    lives: dict[str, Life] = {}
    for at_s, fact in facts:
        if isinstance(fact, f.JobSubmitted):
            lives.setdefault(fact.job, Life(fact.step_s, fact.gpus))
        elif life := lives.get(getattr(fact, "job", "")):
            life.note(at_s, fact)
    for job, balance in balances(facts, context).items():
        lost_s = sum(spell.gpu_s for spell in balance.lost)
        truly_s = lives[job].lost_s(ended_s) * lives[job].gpus
        if not abs(lost_s - truly_s) <= ROUNDING_S + RATE_TOLERANCE * abs(truly_s):
            yield Breach(job, ended_s, f"{lost_s:g} s are lost to it, by its life {truly_s:g} s")
    for job, tries in tries_of(facts).items():
        steps = sum(lost.steps for lost in work_lost(facts) if lost.job == job)
        truly = sum(attempt.to_step - attempt.from_step for attempt in tries[:-1]) - tries[-1].from_step
        if steps != truly:
            yield Breach(job, ended_s, f"{steps} steps are lost to it, executed less kept are {truly}")


RULE = rules.RunRule("lost GPU time is what lives had and did not use", lives_are_accounted_for)


@dataclass(slots=True)
class Life:
    """A job's time on GPUs and its work, fact by fact."""

    step_s: float
    gpus: int
    began_s: float | None = None
    dispatched_s: float = 0.0
    # of the latest attempt, while the job is there; None while it waits
    accounted_s: float | None = None
    over_s: float | None = None
    step: int = 0
    # of an attempt: (first step, speed) of each GPU on which its state was computed
    paces: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    attempt: int = 0
    first_start_s: float | None = None
    replica_s: float = 0.0
    replica_since_s: float | None = None

    def note(self, at_s: float, fact: f.AnyFact) -> None:
        """Take in the next fact about it."""
        match fact:
            case f.JobDispatched(restore_step=step):
                self.began_s = at_s if self.began_s is None else self.began_s
                self.dispatched_s, self.accounted_s, self.step = at_s, None, step
                before = self.paces.get((fact.restore_sequence or 0) // SEQUENCES_PER_ATTEMPT, [])
                self.attempt = fact.attempt
                self.paces[fact.attempt] = [*(pace for pace in before if pace[0] < step), (step, fact.speed)]
                self._release(at_s)
            case f.JobRunning():
                self.accounted_s = at_s
                if self.first_start_s is None:
                    self.first_start_s = at_s - self.dispatched_s
            case f.CheckpointTaken(final=False, step=step) if self.accounted_s is not None:
                self.accounted_s, self.step = at_s, step
            case f.ReplicaHeld():
                self.replica_since_s = at_s
            case f.ReplicaReleased():
                self._release(at_s)
            case f.JobFinished(step=step) | f.JobCancelled(step=step):
                self.over_s, self.step = at_s, step
                self._release(at_s)
            case f.JobFailed():
                self.over_s = at_s
                self._release(at_s)
            case f.JobStopped(last_step=step) | f.CheckpointTaken(final=True, step=step):
                self.accounted_s, self.step = None, max(self.step, step)
                self._release(at_s)

    def _release(self, at_s: float) -> None:
        self.replica_s += 0.0 if self.replica_since_s is None else at_s - self.replica_since_s
        self.replica_since_s = None

    def lost_s(self, ended_s: float) -> float:
        """Return what it had and did not use, seconds of a GPU; what it did again is not done further."""
        self._release(ended_s)
        until_s = next((s for s in (self.over_s, self.accounted_s) if s is not None), ended_s)
        life_s = until_s - (until_s if self.began_s is None else self.began_s)
        edges = pairwise([*self.paces.get(self.attempt, []), (self.step, 1.0)])
        useful_s = sum((until - since) / speed for (since, speed), (until, _) in edges) * self.step_s
        return life_s + self.replica_s - (self.first_start_s or 0.0) - useful_s
