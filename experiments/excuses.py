"""What may keep an admitted migration from being in time, and is no fault of the admission.

Excused are those whose source or destination was lost or closed before the notice was over (an agent that stood still
then is noticed up to SILENCE_S later), whose attempt broke down (a snapshot or a restore that failed), whose owner
changed or withdrew the notice, whose job ended by itself first, and those during which the coordinator was dead for a while.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.core import facts as f
from experiments.history import Notice, Timed, only

SILENCE_S = 5.0  # as played: an agent that stands still is known as lost a lease and a little more after its last word
STOOD_STILL_S = (
    1.8  # counters come with a heartbeat, every second: a longer window is that of a process that was stopped
)
KINDS = (
    f.CoordinatorRestarted,
    f.HostLost,
    f.EgressMeasured,
    f.HostReclaimed,
    f.HostReturned,
    f.JobFinished,
    f.JobFailed,
    f.JobStopped,
)


def possible_excuses(facts: Sequence[Timed]) -> list[Timed]:
    """The few facts of a journal that can excuse anybody."""
    return only(facts, KINDS)


def is_excused(notice: Notice, facts: Sequence[Timed]) -> bool:
    """Whether one of these facts, given in the journal's order, excuses an admitted migration that was late."""
    if any(_was_down(notice, at_s, fact) for at_s, fact in facts):
        return True
    later = (at_fact for at_fact in facts if notice.at_s <= at_fact[0] < notice.deadline_s + SILENCE_S)
    return any(_excuses(notice, at_s, fact) for at_s, fact in later)


def _was_down(notice: Notice, at_s: float, fact: f.AnyFact) -> bool:
    """Whether the coordinator was not there for a part of the time between the admission and the deadline."""
    if not isinstance(fact, f.CoordinatorRestarted) or notice.admitted_s is None:
        return False
    return at_s >= notice.admitted_s and at_s - fact.silent_s < notice.deadline_s


def _excuses(notice: Notice, at_s: float, fact: f.AnyFact) -> bool:
    """Whether something happened that no admission could foresee; all but a silence must come before the deadline."""
    ends = (notice.source, notice.destination)
    if isinstance(fact, f.HostLost):
        return fact.host in ends
    if isinstance(fact, f.EgressMeasured):
        return fact.host in ends and fact.window_s > STOOD_STILL_S
    if at_s >= notice.deadline_s:
        return False
    match fact:
        case f.HostReclaimed(host=host) if host in ends and notice.admitted_s is not None:
            return host == notice.destination or at_s > notice.admitted_s
        case f.HostReturned(host=host):
            return host == notice.source
        case f.JobFinished(job=job) | f.JobFailed(job=job):
            return job == notice.job
        case f.JobStopped(job=job, cause=cause):
            return job == notice.job and cause != "deadline"
    return False
