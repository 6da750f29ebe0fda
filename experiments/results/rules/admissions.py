"""The rule that admitted migrations are in time, and the causes that excuse one: no fault of its admission.

Every admitted migration is in time, late, excused for a named cause, or still under way when the run ended. A cause
excuses only while it lasts and only what it touches: the host (the migration's source or destination) or the job
itself, after the admission, before the deadline, and before the job ran on. A destination that was lost and is back
excuses nothing that is admitted later. A coordinator's death excuses nothing that was admitted after it or due before
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from math import inf

from controller.core.model import facts as f
from experiments.results.history import Notice, Timed, end_s, notices, only
from experiments.results.link_rates import RoutesThen
from experiments.results.rules.breach import Breach
from experiments.results.run_context import RunContext
from topologies.errors import SpecError
from topologies.paths import RouteHistory
from topologies.spec import DirectedLink
from topologies.units import format_duration

# As played: an agent that stands still is known as lost a lease and a little more after its last word.
SILENCE_S = 5.0
# Agents look at their counters ten times a second; one that is so late was stopped, or had no processor.
STOOD_STILL_S = 0.8
KINDS = (
    f.CoordinatorRestarted,
    f.HostLost,
    f.EgressMeasured,
    f.LinkChanged,
    f.TrunksDraining,
    f.MigrationDegraded,
    f.HostReclaimed,
    f.HostReturned,
    f.JobFinished,
    f.JobFailed,
    f.CancelOrdered,
    f.JobCancelled,
    f.JobStopped,
)
# Causes of JobStopped that no admission can foresee; one stopped by its deadline, or by the coordinator, is not among them.
ENDED = {
    "emergency": "its owner closed the host before the notice was over",
    "agent_lost": "the agent of its host was lost",
    "failed_start": "the job could not be restored",
    "failed": "its host said that the job has failed",
    "killed": "the job's process was killed from outside",
    "destination_lost": "the destination was lost",
    "checkpoint_lost": "every holder of its checkpoint was lost",
    "superseded": "a better checkpoint came into reach",
}


@dataclass(frozen=True, slots=True)
class Overdue:
    """An admitted migration whose deadline passed before the job ran on; `excuse` None: nothing excuses it."""

    notice: Notice
    excuse: str | None


def overdue(facts: Sequence[Timed], ended_s: float, routes: RouteHistory | None = None) -> list[Overdue]:
    """Return the overdue migrations of a run that ended at `ended_s`; those still under notice then are not due.

    `routes`: of the run; without them no changed link excuses anything.
    """
    causes = list(only(facts, KINDS))
    return [
        Overdue(notice, excuse(notice, causes, routes))
        for notice in notices(facts)
        if notice.admitted_s is not None
        and not notice.in_time
        and (notice.in_time is False or notice.deadline_s < ended_s)
    ]


def excuse(notice: Notice, facts: Sequence[Timed], routes: RouteHistory | None = None) -> str | None:
    """Return the first cause among these facts, in words; None if none of them excuses the migration."""
    cut_s: float | None = None  # when some trunk last died, or was announced to
    rates: dict[tuple[str, str], float] = {}  # of links that were changed before the admission
    ends = {notice.source: "source", notice.destination: "destination"}
    for at_s, fact in facts:
        if notice.admitted_s is None or at_s < notice.admitted_s:
            if isinstance(fact, f.LinkChanged):
                rates[fact.source, fact.target] = fact.rate_bytes_per_s
            continue
        if isinstance(fact, f.LinkChanged | f.TrunksDraining):
            cut_s = at_s
        match fact:
            case f.CoordinatorRestarted(silent_s=silent_s) if at_s - silent_s < notice.deadline_s:
                return "the coordinator was dead for a part of the notice"
            case f.HostLost(host=host) if host in ends and at_s < notice.deadline_s + SILENCE_S:
                if notice.finished_s is None or at_s <= notice.finished_s:
                    return f"the agent of its {ends[host]} {host} was lost"
            case f.EgressMeasured(host=host, stood_still_s=stood_s) if host in ends and stood_s > STOOD_STILL_S:
                if at_s - fact.window_s - stood_s < notice.deadline_s:
                    return f"the agent of its {ends[host]} {host} stood still"
            case _ if at_s >= notice.deadline_s:
                continue
            case f.MigrationDegraded(job=job) if job == notice.job and at_s == cut_s:
                return "a trunk died, and it was said at once that there is no other way in time"
            case f.LinkChanged(source=a, target=b) if routes and (a, b) in _way(notice, routes, at_s):
                described = routes.campus.capacity_bytes_per_s.get(DirectedLink(a, b), inf)
                if fact.rate_bytes_per_s < rates.get((a, b), described):
                    return f"the link {a}-{b} became slower during the notice"
            case f.HostReclaimed(host=host, notice_s=notice_s) if host == notice.source:
                if at_s > notice.admitted_s and (notice_s <= 0.0 or notice.was_cut):
                    return f"the owner of its source {host} took it before the notice was over"
            case f.HostReclaimed(host=host) if host == notice.destination:
                return f"the owner of its destination {host} reclaimed it"
            case f.HostReturned(host=host) if host == notice.source:
                return f"the owner of its source {host} withdrew the notice"
            case f.JobFinished(job=job) if job == notice.job:
                return "the job finished first"
            case f.JobFailed(job=job) if job == notice.job:
                return "the job failed first"
            case f.CancelOrdered(job=job) | f.JobCancelled(job=job) if job == notice.job:
                return "the job was cancelled"
            case f.JobStopped(job=job, cause=cause) if job == notice.job and cause in ENDED:
                return ENDED[cause]
            case f.JobStopped(job=job, cause="stopped") if job == notice.job and at_s == notice.admitted_s:
                return "its host had ended it before that could hear of the move"  # its lease had lapsed
    return None


def _way(notice: Notice, routes: RouteHistory, until_s: float) -> Set[DirectedLink]:
    """Return the links that a migration has used since its admission; none between hosts that the campus does not have."""
    if notice.destination is None or notice.admitted_s is None:
        return frozenset()
    try:
        return routes.links_of(notice.source, notice.destination, notice.admitted_s, until_s)
    except SpecError:
        return frozenset()


def admitted_migrations_are_in_time(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Check that a migration that was admitted runs on at its destination within the notice.

    Not judged are those whose notice still ran when the run ended, and those that `excuse` names.
    """
    history = RoutesThen(context.campus, facts).history
    for due in overdue(facts, end_s(facts, context.ended_at_s), history):
        if due.excuse is not None:
            continue
        notice = due.notice
        what = "never ran on" if notice.finished_s is None else "ran on only after the deadline"
        yield Breach(
            notice.job,
            notice.deadline_s if notice.finished_s is None else notice.finished_s,
            f"admitted from {notice.source} to {notice.destination} with {format_duration(notice.notice_s)} of notice, "
            f"it {what}",
        )
