"""Account for each job's deadline: kept, late, or late for a named cause that the promise does not count with.

The promise (`controller.core.lifecycle.job_deadlines`) counts with volunteers that are taken back at any moment, and with
agents of theirs that die. It does not count with the loss of the on-demand host that the job was to go to, or of one without an
owner that had its checkpoint, with links on its ways that become slower or are announced to go down, with a coordinator that is
away when the job is to go, with a process that ends of itself, with a copy that cannot be sent though its host is there, nor
with an agent that leaves orders unanswered.
Such a cause excuses a deadline only where it can have touched it: from the moment at which the job pressed, or first was on
demand, until its end; or before, if less was left when it pressed than it needed, so that something made the need grow at once.
Jobs take turns on a GPU: what excuses one that was where another was to go, and still was when that pressed, excuses both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from controller.core.model import facts as f
from experiments.results.history import Timed, only
from topologies.errors import SpecError
from topologies.paths import RouteHistory
from topologies.spec import DirectedLink, Role

AWAY_S = 5.0  # after a restart of the coordinator it listens before it decides (`lifecycle.resync`)
OUTGROWN_S = 0.5  # left less needed at the moment of pressing, if nothing has made the need grow at once: what a wake may be late
# causes of JobStopped that are the process's own
OWN_ENDS = frozenset(("killed", "failed", "failed_start"))
KINDS = frozenset(
    (
        f.JobSubmitted,
        f.DeadlinePresses,
        f.MigrationAdmitted,
        f.JobDispatched,
        f.JobStopped,
        f.JobFinished,
        f.JobFailed,
        f.CancelOrdered,
        f.JobCancelled,
        f.HostLost,
        f.HostJoined,
        f.CoordinatorRestarted,
        f.LinkChanged,
        f.TrunksDraining,
        f.CheckpointCompleted,
        f.CheckpointHeld,
        f.TransferFinished,
    )
)


@dataclass(slots=True)
class JobDeadline:
    """One job's. `ended_s` None: it was not over when the journal ended."""

    job: str
    submitted_s: float
    due_s: float
    pressed_s: float | None = None  # when it had to leave owners' machines, if it had to
    left_s: float = 0.0  # until its deadline, at that moment
    needed_s: float = 0.0
    on_demand_s: float = inf  # when it was first given to a host that no owner takes
    there: set[str] = field(default_factory=set)  # all such hosts that it was to go to
    ended_s: float | None = None
    how: str = ""  # finished, failed or cancelled
    excuse: str = ""  # of one that was late

    def was_late(self, ended_s: float) -> bool:
        """Whether it was not finished in time, in a run that ended then; one that failed or was cancelled before is not late."""
        return self.due_s < (ended_s if self.ended_s is None else self.ended_s)


def deadlines(
    facts: Sequence[Timed], roles: Mapping[str, Role], ended_s: float, routes: RouteHistory
) -> list[JobDeadline]:
    """All of a run that ended at `ended_s`, by submission, with the excuses of those late; `roles`: of the campus's hosts."""
    found: dict[str, JobDeadline] = {}
    telling = list(only(facts, KINDS))
    for at_s, fact in telling:
        match fact:
            case f.JobSubmitted(job=job, deadline_s=float() as within_s):
                found[job] = JobDeadline(job, at_s, at_s + within_s)
            case f.DeadlinePresses(job=job) if job in found:
                each = found[job]
                each.pressed_s, each.left_s, each.needed_s = at_s, fact.left_s, fact.needed_s
                each.there.add(fact.there)
            case f.JobDispatched(job=job, host=host) | f.MigrationAdmitted(job=job, destination=host) if (
                job in found and roles.get(host) is not Role.VOLUNTEER
            ):
                found[job].there.add(host)
                found[job].on_demand_s = min(at_s, found[job].on_demand_s)
            case f.JobFinished(job=job) | f.JobFailed(job=job) | f.JobCancelled(job=job) if job in found:
                found[job].ended_s = at_s
                found[job].how = type(fact).__name__.removeprefix("Job").lower()
    for each in found.values():
        if each.was_late(ended_s):
            each.excuse = _excuse(each, telling, roles, routes) or _excuse_of_turn(
                each, found.values(), telling, roles, routes
            )
    return list(found.values())


def _excuse_of_turn(
    late: JobDeadline,
    every: Iterable[JobDeadline],
    facts: Sequence[Timed],
    roles: Mapping[str, Role],
    routes: RouteHistory,
) -> str:
    """What kept a job on the GPU, when this one was to have its turn there."""
    pressed_s = late.due_s if late.pressed_s is None else late.pressed_s
    for other in every:
        had_it = other.on_demand_s < pressed_s < (inf if other.ended_s is None else other.ended_s)
        shared = other is not late and had_it and not late.there.isdisjoint(other.there)
        if shared and (excuse := _excuse(other, facts, roles, routes)):
            return f"it waited for {other.job}: {excuse}"
    return ""


def _excuse(
    late: JobDeadline, facts: Sequence[Timed], roles: Mapping[str, Role], routes: RouteHistory
) -> str | None:
    """The first cause that can have made it late, in words."""
    pressed_s = min(late.due_s if late.pressed_s is None else late.pressed_s, late.on_demand_s)
    grew = late.pressed_s is not None and late.left_s < late.needed_s - OUTGROWN_S
    from_s, until_s = (
        (late.submitted_s if grew else pressed_s),
        late.due_s if late.ended_s is None else late.ended_s,
    )
    away: dict[str, float] = {}  # hosts without an owner -> since when
    host, holders, failed_s = "", set[str](), -inf
    rates: dict[DirectedLink, float] = {}  # of links that were changed
    for at_s, fact in facts:
        if at_s > until_s:
            break
        match fact:
            case f.HostJoined(host=name) if name in away:
                if away.pop(name) <= until_s and at_s >= from_s:
                    return f"{name}, which no owner has, was away"
            case (
                f.CheckpointCompleted(job=late.job, holder=name) | f.CheckpointHeld(job=late.job, holder=name)
            ):
                holders.add(name)
            case f.TransferFinished(job=late.job, ok=False):
                failed_s = at_s
            case f.HostLost(host=name) if name in late.there or (
                (grew or at_s >= from_s) and name in holders and roles.get(name) is not Role.VOLUNTEER
            ):
                away[name] = at_s
            case f.HostLost(host=name, reason=reason) if name == host and at_s >= from_s:
                if "not answered" in reason:
                    return f"the agent of {name} did not answer"
            case f.JobDispatched(job=late.job, host=name):
                host = name
            case f.CoordinatorRestarted(silent_s=silent_s) if at_s + AWAY_S >= from_s:
                if at_s - silent_s <= until_s:
                    return "the coordinator was away"
            case f.LinkChanged(source=a, target=b, rate_bytes_per_s=rate):
                link = DirectedLink(a, b)
                before = rates.get(link, routes.campus.capacity_bytes_per_s.get(link, inf))
                rates[link] = rate
                slower = at_s >= from_s and rate < before
                if slower and link in _ways(holders | {host}, late.there, routes, from_s, at_s):
                    return f"the link {a}-{b} became slower"
            case f.TrunksDraining(trunks=trunks) if at_s >= from_s:
                ends = {
                    frozenset((link.source, link.target))
                    for link in _ways(holders | {host}, late.there, routes, from_s, at_s)
                }
                if any(frozenset(trunk) in ends for trunk in trunks):
                    return "a trunk was announced to go down"
            case f.JobStopped(job=late.job, cause="checkpoint_lost") if at_s >= from_s and at_s == failed_s:
                return "its checkpoint could not be sent"  # else its holder was lost, or an owner took it
            case f.JobStopped(job=late.job, cause=cause) if cause in OWN_ENDS and at_s >= from_s:
                return f"its process ended: {cause}"
            case f.JobStopped(job=late.job, host=name, cause="agent_lost" | "stopped") if at_s >= from_s:
                # no coordinator stops it there: the host does, where it has heard of none for a lease (storms judge both)
                if roles.get(name) is not Role.VOLUNTEER:
                    return (
                        f"{name}, which no owner has, and the coordinator did not hear each other for a lease"
                    )
            case f.CancelOrdered(job=late.job):
                return "it was cancelled"
    return f"{min(away)}, which no owner has, was away" if away else None


def _ways(
    sources: Iterable[str], there: Iterable[str], routes: RouteHistory, from_s: float, until_s: float
) -> set[DirectedLink]:
    """The links between these hosts, in either direction, in that time; none of a host that the campus does not have."""
    links: set[DirectedLink] = set()
    for source in sources:
        for to in there:
            try:
                links |= routes.links_of(source, to, from_s, until_s) | routes.links_of(
                    to, source, from_s, until_s
                )
            except SpecError:
                continue
    return links
