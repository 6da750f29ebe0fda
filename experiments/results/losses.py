"""Costs of reclaims: the one definition of work loss, per event and in GPU-hours, for summaries, claims and the oracle.

*Work loss* of a job is what it executed less what it kept, in steps: the steps of all attempts that another one
followed, less the step that the latest attempt began from. Each attempt that is followed by one from an earlier step
*lost* the steps between. One that is followed by an attempt from a *later* step gives back what earlier attempts lost:
it comes off their losses, the latest first. A holder of an older and better checkpoint came back then, whether the job
was stopped for that or by something else. So the losses of a job's attempts always sum to executed less kept.

An *interruption* is an attempt that ended before its job did: its host was taken back, with notice or without, or died;
0 where a migration carried everything over. Its downtime is from the stop until the job is proved to run again. An
attempt that was stopped in favour of a better checkpoint, and lost nothing by it, is no interruption. Losses are in
seconds or hours of the GPU that lost them: of a job on n GPUs they count n times. *Per event* is the sum over the number of
interruptions, those that lost nothing included. A job that is not dispatched again before the run ends has lost nothing
yet, and is counted as open: what its newest copy does not have is sure to be lost, and counts as work that it kept.
That matters where jobs wait for long: on 20 days of paper A's campus (seed 3) it is .8 GPU-h beside 10.5 lost, for jobs
that wait for their hosts (no-migration). It is nothing for the other rows of Table III that were tried. To count it
would take the copies, which most readers of this file do not carry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from experiments.results.history import OVER, Attempt, Timed, once, story_of, tries_of
from testbed.messages import SEQUENCES_PER_ATTEMPT

SECONDS_AN_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class InterruptedAttempt:
    """An attempt that ended before its job did, and what that cost (`experiments.results.losses`)."""

    at_s: float  # when the attempt ended
    job: str  # its name
    host: str  # where it ran
    cause: str  # how it ended, as in `attempts`
    lost_s: float  # of computing
    downtime_s: float | None  # until the next attempt ran; none: none has
    is_open: bool  # the job had not been dispatched again


@dataclass(slots=True)
class LostSteps:
    """Steps that an attempt had executed and no later one kept, and their `work_s`; `cause`: how that attempt ended."""

    job: str
    attempt: int
    cause: str
    steps: int
    gpu_steps: float  # each step over the speed of the GPU that computed it
    work_s: float = 0.0


def gpu_steps_of(tries: Sequence[Attempt], attempt: Attempt, step: int) -> float:
    """Return the steps to an attempt's state of `step`, each over the speed of the GPU that computed it.

    `tries` are the job's attempts. Those that the state descends from are known by the checkpoints that each began from.
    """
    by_number, total = {each.attempt: each for each in tries}, 0.0
    while parent := by_number.get((attempt.restore_sequence or 0) // SEQUENCES_PER_ATTEMPT):
        if parent.attempt >= attempt.attempt:
            break
        inherited = min(step, attempt.from_step)
        total, step, attempt = total + (step - inherited) / attempt.speed, inherited, parent
    return total + step / attempt.speed


@once
def work_lost(facts: Sequence[Timed]) -> list[LostSteps]:
    """Return the loss of each attempt that another one followed, in order of dispatch; 0 steps where nothing was lost."""
    submitted, found = story_of(facts).submitted, list[LostSteps]()
    for job, tries in tries_of(facts).items():
        step_s = submitted[job].step_s * submitted[job].gpus if job in submitted else 0.0  # of a GPU
        lost: list[LostSteps] = []
        for attempt, following in pairwise(tries):
            steps = attempt.to_step - following.from_step
            gpu_steps = gpu_steps_of(tries, attempt, attempt.to_step) - gpu_steps_of(
                tries, following, following.from_step
            )
            lost.append(LostSteps(job, attempt.attempt, attempt.how, steps, gpu_steps))
            for one in reversed(lost[:-1]):  # what this one lost, or gives back to those before
                back = min(one.steps, max(0, -lost[-1].steps))
                one.steps, lost[-1].steps = one.steps - back, lost[-1].steps + back
                back_s = min(one.gpu_steps, max(0.0, -lost[-1].gpu_steps))
                one.gpu_steps, lost[-1].gpu_steps = one.gpu_steps - back_s, lost[-1].gpu_steps + back_s
        for one in lost:
            one.work_s = one.gpu_steps * step_s
        found += lost
    return found


@once
def interruptions(facts: Sequence[Timed]) -> list[InterruptedAttempt]:
    """Return the interruptions in order of time."""
    lost_s = {(lost.job, lost.attempt): lost.work_s for lost in work_lost(facts)}
    found = []
    for job, tries in tries_of(facts).items():
        for attempt, following in zip(tries, [*tries[1:], None], strict=True):
            work_s = lost_s.get((job, attempt.attempt))
            if attempt.ended_s is None or attempt.how in OVER or (attempt.how == "superseded" and not work_s):
                continue
            down_s = None if following is None else following.downtime_s
            found.append(
                InterruptedAttempt(
                    attempt.ended_s, job, attempt.host, attempt.how, work_s or 0.0, down_s, work_s is None
                )
            )
    return sorted(found, key=lambda each: (each.at_s, each.job))
