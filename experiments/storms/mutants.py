"""Rules of the deciding code, each broken on purpose: storms that do not notice one prove nothing about it.

A mutant replaces one named function (or method) by one that is wrong, wherever the program refers to it: in each module
that imported it, and in the rows of the policies. References in machine code cannot be replaced, so mutants play as Python.
`reclaimnet storm --mutants all --seeds 0:60` plays each until a storm notices it. What storms do not notice, tests do: the worst
destination `test_placement`, no second copy `test_vault`, a late final snapshot `test_reservations`. `rates not reminded` is the
same program: the orders that follow a Hello (Protect, Migrate, SendStored) carry the rates again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib import import_module
from math import inf
from typing import Any

from msgspec.structs import replace

from controller.core.lifecycle.attempts import cancelled
from controller.core.lifecycle.grants import reservations
from controller.core.model import effects as cdo
from controller.core.model import facts
from controller.core.policies.table import POLICIES
from testbed import messages as m
from testbed.agent.core import effects as ado

PROGRAM = ("controller", "experiments", "testbed")
Change = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`target` ("package.module:name" or "package.module:Class.name") is replaced by what `change` makes of it."""

    name: str
    target: str
    change: Change
    trunks: bool = False  # of a rule of several paths: storms whose trunks die are played


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """The program with that mutant in it. LookupError: it has no such function."""
    module, _, path = mutant.target.partition(":")
    owner: Any = import_module(module)
    *outer, name = path.split(".")
    for each in outer:
        owner = getattr(owner, each)
    original = owner.__dict__.get(name)
    if original is None:
        raise LookupError(f"mutant {mutant.name}: there is no {mutant.target}")
    changed = mutant.change(original)
    places: list[tuple[Any, str]] = [(owner, name)]
    if not outer:
        named = [
            (key, module) for key, module in list(sys.modules.items()) if key.partition(".")[0] in PROGRAM
        ]
        places = [
            (module, key)
            for _, module in named
            for key, value in list(vars(module).items())
            if value is original
        ]
        rows = POLICIES.values()
        places += [
            (row, each.name) for row in rows for each in fields(row) if getattr(row, each.name) is original
        ]
    for place, held in places:
        _set(place, held, changed)
    try:
        yield
    finally:
        for place, held in places:
            _set(place, held, original)


def _set(place: Any, name: str, value: Any) -> None:
    if place in POLICIES.values():
        object.__setattr__(place, name, value)  # rows are frozen
    else:
        setattr(place, name, value)


LIFE = "controller.core.lifecycle"
AGENT = "testbed.agent.core"
ALL: list[Mutant] = []


def _mutant(name: str, target: str, how: Callable[[Any], Change] | None = None) -> Callable[[Any], Any]:
    """Enter a change into `ALL`; `how` makes a change of a function that only meddles."""

    def add(change: Any) -> Any:
        ALL.append(Mutant(name, target, change if how is None else how(change)))
        return change

    return add


# ---------------------------------------------------------------- ways to be wrong


def _nothing(original: Any) -> Any:
    """Does nothing, and says that nothing follows."""
    return lambda *given, **named: []


def _times(factor: float) -> Change:
    """Answers with so many times the right number."""
    return lambda original: lambda *given, **named: factor * original(*given, **named)


def _without(*kinds: type) -> Change:
    """Leaves out the agent's effects of these kinds."""
    return lambda original: (
        lambda *given, **named: [
            effect for effect in original(*given, **named) if not isinstance(effect, kinds)
        ]
    )


def _unsent(*kinds: type) -> Change:
    """Keeps messages and facts of these kinds out of the coordinator's outbox."""
    return _posting(lambda effect: None if isinstance(_content(effect), kinds) else effect)


def _posting(told: Callable[[Any], Any]) -> Change:
    """Posts of each effect what is `told` of it; None: nothing."""

    def change(original: Any) -> Any:
        def wrong(cluster: Any, *given: Any, **named: Any) -> Any:
            before = len(cluster.outbox)
            answer = original(cluster, *given, **named)
            effects = [told(effect) for effect in cluster.outbox[before:]]
            cluster.outbox[before:] = [effect for effect in effects if effect is not None]
            return answer

        return wrong

    return change


def _content(effect: Any) -> Any:
    return getattr(effect, "message", None) or getattr(effect, "fact", None)


def _before(meddle: Callable[..., None]) -> Change:
    """Meddles with what it is given, then works."""

    def change(original: Any) -> Any:
        def wrong(*given: Any, **named: Any) -> Any:
            meddle(*given)
            return original(*given, **named)

        return wrong

    return change


def _after(meddle: Callable[..., None]) -> Change:
    """Works, then meddles with what it was given."""

    def change(original: Any) -> Any:
        def wrong(*given: Any, **named: Any) -> Any:
            answer = original(*given, **named)
            meddle(*given)
            return answer

        return wrong

    return change


@_mutant("no research reserve", "controller.core.admission.admission:migration_share")
def _all_of_each_link(original: Any) -> Any:
    return lambda capacity, reserve, payload_share=1.0: {
        link: payload_share * b for link, b in capacity.items()
    }


@_mutant("grants doubled", "controller.core.admission.admission:share_totals")
def _twice_the_rates(original: Any) -> Any:
    def wrong(wants: Any, share: Any) -> Any:
        rates, held_by = original(wants, share)
        return 2.0 * rates, held_by

    return wrong


@_mutant("turns told once", "controller.core.lifecycle.migration:tell_starts")
def _turns_not_told_anew(original: Any) -> Any:
    def wrong(cluster: Any, plan: Any) -> None:
        for flow, reservation in reservations(cluster):
            begins_s = plan.begins_s(flow.key)
            if reservation.since_s is None and not reservation.told and begins_s < inf:
                reservation.final_at_s = begins_s - reservation.lead_s
                cluster.orders[flow.key] = None

    return wrong


def _half_the_loss(effect: Any) -> Any:
    fact = _content(effect)
    if isinstance(fact, facts.WorkLost):
        return cdo.Record(replace(fact, work_lost_s=fact.work_lost_s / 2.0))
    return effect


@_mutant("worst destination", "controller.core.placement.select:_least_score")
def _greatest_score(original: Any) -> Any:
    def wrong(rows: Any, there_s: Any, risks: Any, mean_s: Any, alpha: float) -> tuple[int, float]:
        worst = max(rows.tolist(), key=lambda row: (risks[row], there_s[row]))
        return worst, float(there_s[worst])

    return wrong


@_mutant("agent says a step too much", f"{AGENT}.agent:AgentCore._keep")
def _a_step_beyond(original: Any) -> Any:
    def wrong(core: Any, checkpoint: Any) -> list[ado.Effect]:
        return [*original(core, replace(checkpoint, step=checkpoint.step + 1))]

    return wrong


def _lease_of(factor: float) -> Change:
    def change(original: Any) -> Any:
        def wrong(lease: Any, number: int) -> list[ado.Effect]:
            lease_s = lease.lease_s
            lease.lease_s = factor * lease_s
            try:
                found: list[ado.Effect] = original(lease, number)
                return found
            finally:
                lease.lease_s = lease_s

        return wrong

    return change


@_mutant("agent starts what is stale", f"{AGENT}.agent:AgentCore._start")
def _as_if_lent_all_along(original: Any) -> Any:
    def wrong(core: Any, order: Any, now_s: float) -> Any:
        is_lent, core.lent = core.lent, True
        effects = original(core, replace(order, closures=core.closures), now_s)
        core.lent = is_lent
        return effects

    return wrong


@_mutant("agent starts without a lease", f"{AGENT}.agent:AgentCore._start")
def _as_if_leased(original: Any) -> Any:
    def wrong(core: Any, order: Any, now_s: float) -> Any:
        until_s, core.lease.lease_until_s = core.lease.lease_until_s, inf
        effects = original(core, order, now_s)
        core.lease.lease_until_s = until_s
        return effects

    return wrong


@_mutant("agent forgets nothing", f"{AGENT}.agent:AgentCore._obey")
def _deaf_to_forget(original: Any) -> Any:
    def wrong(core: Any, message: Any, now_s: float) -> Any:
        return [] if isinstance(message, m.Forget) else original(core, message, now_s)

    return wrong


@_mutant("agent never slows down", f"{AGENT}.outbound:Outbound.regrant")
def _only_higher(original: Any) -> Any:
    def wrong(outbound: Any, job: str, destination: str, rate_bytes_per_s: float) -> list[ado.Effect]:
        sending = outbound.table.get((job, destination))
        if sending is not None and rate_bytes_per_s < sending.rate_bytes_per_s:
            return []
        found: list[ado.Effect] = original(outbound, job, destination, rate_bytes_per_s)
        return found

    return wrong


@_mutant("no fence margin", f"{LIFE}.membership:disconnect")
def _margin_ignored(original: Any) -> Any:
    def wrong(cluster: Any, host: Any) -> None:
        original(cluster, host)
        cluster.fence(host, max(cluster.now_s, host.lease_until_s - cluster.settings.fence_margin_s))

    return wrong


@_mutant("no wait for leases", f"{LIFE}.membership:disconnect", _after)
def _fence_at_once(cluster: Any, host: Any) -> None:
    cluster.fence(host, cluster.now_s)


@_mutant("lands before it is there", f"{LIFE}.checkpoints:land_if_there")
def _land_anyway(original: Any) -> Any:
    def wrong(cluster: Any, job: Any) -> Any:
        final = job.checkpoints.get(job.final_sequence)
        if job.move is not None and final is not None:
            final.holders.add(job.move.destination)
        return original(cluster, job)

    return wrong


@_mutant("oldest checkpoint", "controller.core.model.cluster:Cluster.freshest")
def _oldest(original: Any) -> Any:
    def wrong(cluster: Any, job: Any) -> Any:
        reachable = [c for c in job.checkpoints.values() if c.holders]
        return min(reachable, key=lambda c: c.stored.step, default=None)

    return wrong


@_mutant("agent numbers a snapshot twice", f"{AGENT}.running:Running.begin_snapshot", _before)
def _same_number(running: Any) -> None:
    running.last_sequence -= 1


@_mutant("completes again", f"{LIFE}.checkpoints:_complete", _before)
def _forget_completed(cluster: Any, job: Any, host: Any, stored: Any, beside: Any) -> None:
    job.completed.discard(stored.sequence)


@_mutant("attempts not counted", f"{LIFE}.attempts:begin_attempt", _before)
def _same_attempt(cluster: Any, job: Any, *rest: Any) -> None:
    job.attempt -= 1 if job.attempt > 1 else 0


@_mutant("backlog loses the first", f"{LIFE}.offers:gpu_freed", _before)
def _lose_first_waiting(cluster: Any, *rest: Any) -> None:
    cluster.backlog = cluster.backlog[1:]


@_mutant("agent calls every end finished", f"{AGENT}.agent:AgentCore._workload_ended")
def _finished_always(original: Any) -> Any:
    return lambda core, event: original(core, replace(event, ended=replace(event.ended, outcome="finished")))


@_mutant("silence never noticed", f"{LIFE}.membership:heard", _after)
def _believes_for_ever(cluster: Any, host: Any) -> None:
    cluster.lease(host, cluster.now_s + 1e6)


@_mutant("cancelled before its process is gone", f"{LIFE}.cancellation:_end")
def _over_at_once(original: Any) -> Any:
    def end(cluster: Any, job: Any) -> None:
        original(cluster, job)
        if job.phase == "cancelling":
            cancelled(cluster, job, "gone")

    return end


def _without_what(field: str) -> Callable[..., None]:
    """Hellos after a restart say nothing of that kind."""

    def meddle(cluster: Any, reunion: Any) -> None:
        reunion.hellos = {name: replace(hello, **{field: []}) for name, hello in reunion.hellos.items()}

    return meddle


@_mutant("holders forgotten", f"{LIFE}.checkpoints:_complete", _after)
def _no_holders(cluster: Any, job: Any, host: Any, stored: Any, beside: Any) -> None:
    for checkpoint in job.checkpoints.values():
        checkpoint.holders.clear()


def _telling(kind: type, told: Callable[[Any], Any]) -> Change:
    """Records of each fact of that kind what is `told` of it."""

    def of(effect: Any) -> Any:
        fact = getattr(effect, "fact", None)
        return cdo.Record(told(fact)) if isinstance(fact, kind) else effect

    return _posting(of)


def _half(*names: str) -> Callable[[Any], Any]:
    return lambda fact: replace(fact, **{name: (getattr(fact, name) or 0.0) / 2.0 for name in names})


@_mutant("steps of heartbeats not heard", f"{LIFE}.membership:heartbeat")
def _without_steps(original: Any) -> Any:
    def wrong(cluster: Any, host: Any, beat: Any) -> Any:
        return original(cluster, host, replace(beat, jobs=[replace(claim, step=0) for claim in beat.jobs]))

    return wrong


@_mutant("stops for any older checkpoint", f"{LIFE}.rollforward:take_up_better")
def _whatever_is_there(original: Any) -> Any:
    def wrong(cluster: Any, job: Any) -> None:
        if cluster.policy.takes_up and job.phase == "running" and len(job.checkpoints) > 1:
            cluster.tell(job.host, m.StopJob(job.name, job.attempt))

    return wrong


@_mutant("interval told once", f"{LIFE}.protection:_tell_interval")
def _the_first_only(original: Any) -> Any:
    def wrong(cluster: Any, job: Any, interval: Any, hazard_per_s: float) -> None:
        if job.interval_s is None:
            original(cluster, job, interval, hazard_per_s)
        job.interval_s = interval.interval_s

    return wrong


@_mutant("final snapshot said again is another stop", f"{LIFE}.job_reports:snapshot_taken", _before)
def _stops_again(cluster: Any, host: Any, message: Any) -> None:
    job = cluster.jobs.get(message.job)
    if message.final and job is not None and job.final_sequence == message.sequence:
        job.stopped_at_s = None


@_mutant("receivers go on expecting", f"{LIFE}.announcements:announce", _after)
def _expected_for_ever(cluster: Any) -> None:
    kept = [e for e in cluster.outbox if not isinstance(getattr(e, "message", None), m.ExpectNoMore)]
    cluster.outbox[:] = kept


def _without_pins(original: Any) -> Any:
    """All that the testbed sends goes by the tree, whatever way the coordinator wants."""
    return lambda topology, left, pins: original(topology, left)


def _keeping_routes(original: Any) -> Any:
    """Rates are taken over; routes stay as if the campus were a tree."""

    def change(cluster: Any, wire_bytes_per_s: Any) -> bool:
        cluster.routes.has_choice = False
        return bool(original(cluster, wire_bytes_per_s))

    return change


ALL += [
    Mutant("loss halved", f"{LIFE}.attempts:begin_attempt", _posting(_half_the_loss)),
    Mutant("loss not told", f"{LIFE}.attempts:begin_attempt", _unsent(facts.WorkLost)),
    Mutant(
        "tell before kill", f"{AGENT}.effects:kills_first", lambda original: lambda effects: effects[::-1]
    ),
    Mutant("never fences", f"{LIFE}.membership:fence", _nothing),
    Mutant("vault never", f"{LIFE}.second_copy:keep_safe", _nothing),
    Mutant("checkpoints never", f"{LIFE}.checkpoints:stored_by", _nothing),
    Mutant("flows left open", f"{LIFE}.grants:close_flow", _unsent(m.CancelTransfers)),
    Mutant("rates never told", f"{LIFE}.grants:settle", _unsent(m.Grant)),
    Mutant("rates not reminded", f"{LIFE}.grants:tell_grants", _nothing),
    Mutant("destination lost, nothing done", f"{LIFE}.migration:replan", _nothing),
    Mutant("payload counted half", f"{LIFE}.move_times:granted_bytes", _times(0.5)),
    Mutant(
        "final snapshot late",
        f"{LIFE}.migration:final_within_s",
        lambda original: lambda *given: original(*given) + 3.0,
    ),
    Mutant("notice believed longer", f"{LIFE}.migration:_notice_s", _times(1.5)),
    Mutant("owner's return not heard", f"{LIFE}.membership:owner_returns", _nothing),
    Mutant("closed host not let go", f"{LIFE}.membership:let_go", _nothing),
    Mutant("offers not withdrawn", f"{LIFE}.attempts:withdraw_offers", _nothing),
    Mutant("GPU not held", f"{LIFE}.attempts:reserve", _nothing),
    Mutant("GPU not released", f"{LIFE}.attempts:release", _nothing),
    Mutant("interrupted, not resumed", f"{LIFE}.offers:_come_back", _nothing),
    Mutant("nothing forgotten", f"{LIFE}.attempts:over", _unsent(m.Forget)),
    Mutant(
        "memory ignored",
        "controller.core.model.cluster:Cluster.fits",
        lambda original: lambda *given, **named: True,
    ),
    Mutant("deadlines press late", f"{LIFE}.job_deadlines:reserve_s", _times(0.7)),
    Mutant("turns not added up", f"{LIFE}.job_deadlines:_spare_s", lambda original: lambda *given: 1e9),
    Mutant("no GPU kept", "controller.core.model.cluster:Cluster.keep_gpu", _nothing),
    Mutant("ends not heard", f"{LIFE}.job_reports:job_ended", _nothing),
    Mutant("stored not heard after a restart", f"{LIFE}.resync:judge", _before(_without_what("stored"))),
    Mutant("ended not heard after a restart", f"{LIFE}.resync:judge", _before(_without_what("ended"))),
    Mutant("agent keeps computing", f"{AGENT}.agent:AgentCore._close", _without(ado.KillWorkload)),
    Mutant("agent's lease is long", f"{AGENT}.lease:Lease.acknowledged", _lease_of(1.5)),
    Mutant("agent claims no jobs", f"{AGENT}.agent:AgentCore._claims", _nothing),
    Mutant("agent does not try again", f"{AGENT}.outbound:Outbound.retry", _nothing),
    Mutant("dead trunk, moves not planned anew", f"{LIFE}.link_changes:_replan_moves", _nothing, trunks=True),
    Mutant(
        "dead trunk, routes as before",
        "controller.core.model.cluster:Cluster.links_changed",
        _keeping_routes,
        trunks=True,
    ),
    Mutant("tables without pins", "controller.openflow.routes:tables", _without_pins, trunks=True),
    Mutant("ways never asked for", f"{LIFE}.ways:ask_network", _nothing, trunks=True),
    Mutant(
        "downtime told half",
        f"{LIFE}.job_reports:job_started",
        _telling(facts.JobRunning, _half("downtime_s")),
    ),
    Mutant(
        "delays told half", f"{LIFE}.attempts:begin_attempt", _telling(facts.JobDispatched, _half("delay_s"))
    ),
    Mutant("costs told half", f"{LIFE}.attempts:begin_attempt", _telling(facts.JobDispatched, _half("cost"))),
    Mutant(
        "every migration told as in time",
        f"{LIFE}.migration:landed",
        _telling(facts.MigrationFinished, lambda fact: replace(fact, in_time=True)),
    ),
    Mutant("admissions not told", f"{LIFE}.migration:_begin_move", _unsent(facts.MigrationAdmitted)),
    Mutant("degraded not told", f"{LIFE}.migration:plan_moves", _unsent(facts.MigrationDegraded)),
    Mutant(
        "notices told longer",
        f"{LIFE}.membership:owner_reclaims",
        _telling(facts.HostReclaimed, lambda fact: replace(fact, notice_s=2.0 * fact.notice_s)),
    ),
    Mutant(
        "emergencies told as deadlines",
        f"{LIFE}.offers:_stop",
        _telling(
            facts.JobStopped,
            lambda fact: replace(fact, cause="deadline" if fact.cause == "emergency" else fact.cause),
        ),
    ),
    Mutant(
        "hosts under notice are planned with",
        "controller.core.model.entities:HostState.usable",
        lambda original: property(
            lambda host: host.connected and (host.lent or host.reclaim_at_s is not None)
        ),
    ),
]
BY_NAME = {mutant.name: mutant for mutant in ALL}
