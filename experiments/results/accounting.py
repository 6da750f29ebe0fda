"""Account of a run: its `Summary` from its facts. `experiments.results.summary` has the meaning of every number."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from controller.core.model import facts as f
from experiments.results.expected_loss import expected_emergencies_s
from experiments.results.history import (
    OVER,
    History,
    Timed,
    Where,
    attempts,
    end_s,
    notices,
    only,
    story_of,
    tries_of,
    whereabouts,
)
from experiments.results.link_rates import RoutesThen
from experiments.results.losses import interruptions, work_lost
from experiments.results.lost_time import WORK_LOST, LostPart, balances, by_class, by_hour, submitted_jobs
from experiments.results.online_bound import online_bound
from experiments.results.rules import broken
from experiments.results.rules.admissions import overdue
from experiments.results.rules.network import goodputs_over_guarantee
from experiments.results.run_context import FidelityRecord, RunContext, research_shares
from experiments.results.summary import (
    DIMENSIONS,
    CheckpointFigures,
    Cost,
    Delay,
    Emergencies,
    GoodputFigures,
    Interruptions,
    JobFigures,
    KillSwitchFigures,
    LostGpuTime,
    MigrationFigures,
    MissedDeadline,
    NetworkObservation,
    ResearchFigures,
    RunVerdict,
    Summary,
    TrafficFigures,
    value_of,
)
from testbed.emulation.safety.observation import cause_of
from topologies.paths import RouteHistory
from topologies.spec import Role
from topologies.units import format_duration

WITH_LEVEL = (f.JobQueued, f.JobRedirected, f.LevelLearned)
# of the target: a mean delay this far below it is no noise of a few jobs
WELL_BELOW = 0.8


def summarise(facts: Sequence[Timed], context: RunContext) -> Summary:
    """Return the figures of a run; facts in the journal's order, times in seconds since the coordinator started."""
    facts = facts if isinstance(facts, History) else History(facts)
    verdict, ended_s = context.fidelity, end_s(facts, context.ended_at_s)
    dispatched, sent, taken = (facts.of(f.JobDispatched), facts.of(f.TransferFinished), facts.of(f.CheckpointTaken))
    over_guarantee = goodputs_over_guarantee(facts, context) if context.world == "live" else ()
    goodputs = [each.goodput_over_grant for each in sent if each.goodput_over_grant is not None]
    pauses_s = [each.pause_s for each in taken if each.pause_s is not None and not each.final]
    egress, switches = facts.of(f.EgressMeasured), context.switches
    drops_s = [use.first_drop_after_s for use in switches if use.first_drop_after_s is not None]
    levels = (fact.level for _, fact in reversed(facts) if isinstance(fact, WITH_LEVEL))
    shares, routes = research_shares(context), RoutesThen(context.campus, facts).history
    links = [(s.sample.reserve_bytes_per_s, s.sample.link_capacity_bytes_per_s) for s in shares]
    if not links:
        rates = [context.campus.access_link(host.name).rate_bytes_per_s for host in context.campus.hosts]
        links = [(context.campus.research_reserve.reserve_bytes_per_s(rate), rate) for rate in rates]
    took_s = [each.took_s for each in context.completions if each.took_s is not None]
    summary = Summary(
        jobs=_jobs(facts, context, ended_s),
        migrations=_migrations(facts, ended_s, routes, verdict),
        emergencies=_emergencies(facts),
        interruptions=_interruptions(facts),
        lost_time=_lost_time(facts, context),
        checkpoints=CheckpointFigures(
            completed=len(facts.of(f.CheckpointCompleted)),
            bytes_sent=sum(each.bytes_sent for each in sent),
            bytes_deduplicated=sum(each.bytes_deduplicated for each in sent),
            taken=len(taken),
            stopped=sum(bool(each.stopped) for each in taken if not each.final),
            pause_median_s=quantile(pauses_s, 0.5),
            pause_p99_s=quantile(pauses_s, 0.99),
        ),
        rates=GoodputFigures(
            flows=len(goodputs),
            worst_goodput_over_grant=min(goodputs, default=None),
            worst_goodput_over_guarantee=min(over_guarantee, default=None),
            median_goodput_over_grant=quantile(goodputs, 0.5),
            bucket_drops=sum(each.drops for each in sent),
            egress_drops=sum(e.drops for e in egress),
        ),
        traffic=TrafficFigures(
            migration_bytes=sum(e.migration_bytes for e in egress),
            research_bytes=sum(e.research_bytes for e in egress),
            peak_migration_bytes_per_s=max((e.peak_migration_bytes_per_s for e in egress), default=0.0),
        ),
        research=ResearchFigures(
            reserve_bytes_per_s=min(reserve for reserve, _ in links),
            reserve_share=min(reserve / capacity for reserve, capacity in links),
            lowest_share=min((s.share for s in shares), default=None),
            samples=len(shares),
            flows=len(context.completions) or None,
            flows_cut=len(context.completions) - len(took_s) if context.completions else None,
            completion_median_s=quantile(took_s, 0.5),
            completion_p99_s=quantile(took_s, 0.99),
        ),
        cost=Cost(_mean(d.cost for d in dispatched), context.on_demand_cost),
        delay=Delay(_mean(d.delay_s for d in dispatched), context.target_delay_s),
        level=next(levels, None),
        kill_switch=KillSwitchFigures(
            probes=len(switches),
            set_to_closed_median_s=quantile([use.set_to_closed_s for use in switches], 0.5),
            set_to_closed_worst_s=max((use.set_to_closed_s for use in switches), default=None),
            first_drop_median_s=quantile(drops_s, 0.5),
            connections_tried=sum(use.connections_tried for use in switches),
            connections_admitted=sum(use.connections_admitted for use in switches),
        ),
        fidelity=RunVerdict(
            verdict.valid,
            list(verdict.reasons),
            dict(verdict.figures),
            [
                NetworkObservation(
                    where,
                    seen.retransmitted,
                    seen.dropped,
                    seen.round_trip.quantile_s(0.5),
                    seen.round_trip.quantile_s(0.99),
                    seen.run_delay.quantile_s(0.5),
                    seen.run_delay.quantile_s(0.99),
                )
                for where, seen in verdict.observed.items()
            ],
            verdict.watched,
        ),
        invariants_broken=broken(facts, context),
        world=context.world,
        scale={"bytes": context.scale.bytes, "time": context.scale.time},
        scenario=context.scenario,
        policy=context.policy,
        seed=context.seed,
        campus=context.campus.name,
        duration_s=ended_s,
        ended=context.ended,
        deaths=list(context.deaths),
        real_scale={},
        not_promised=dict(context.not_promised),
    )
    played = {name: value_of(summary, name) for name in DIMENSIONS}
    real = {
        name: context.scale.back(float(value), DIMENSIONS[name]) for name, value in played.items() if value is not None
    }
    warnings, mean_delay_s = list[str](), summary.delay.mean_s or 0.0
    if not summary.migrations.planned and not facts.of(f.JobStopped):
        warnings.append("no reclaim met a job: what is promised about reclaims was not put to the test")
    step_s = {job: known.step_s for job, known in submitted_jobs(facts, context).items()}
    for fact in facts.of(f.JobSubmitted):
        if (measured_s := step_s[fact.job]) < fact.step_s:
            told = f"declared {format_duration(fact.step_s)} a step, measured {format_duration(measured_s)}"
            warnings.append(f"{fact.job}: {told}, which counts; P1 went by what was declared")
    if free := [fact.job for fact in facts.of(f.JobSubmitted) if not fact.sandboxed]:
        warnings.append(f"without a sandbox, as root: {', '.join(free[:20])}")
    is_at_limit = summary.jobs.on_demand and (summary.level or 0.0) >= context.level_max
    if is_at_limit and mean_delay_s < WELL_BELOW * context.target_delay_s:
        told = f"{format_duration(mean_delay_s)} of {format_duration(context.target_delay_s)}"
        warnings.append(
            f"r is at its limit r_max = {context.level_max:g} while jobs wait less than they may ({told}): jobs paid for "
            "on-demand that could have waited; give the queue a larger level_max"
        )
    return replace(summary, real_scale=real, warnings=warnings)


# ---------------------------------------------------------------- the parts


def _jobs(facts: History, context: RunContext, ended_s: float) -> JobFigures:
    submitted = {fact.job for fact in facts.of(f.JobSubmitted)}
    places = Counter(place for job, place in whereabouts(facts).items() if job in submitted)
    finished, failed, waiting = places[Where.FINISHED], places[Where.FAILED], places[Where.WAITING]
    cancelled, running = places[Where.CANCELLED], places[Where.ON_HOST] + places[Where.ON_THE_WAY]
    dispatched = facts.of(f.JobDispatched)
    again = Counter(fact.job for fact in dispatched)
    again.subtract(set(again))
    again = +again
    gpus = {fact.job: fact.gpus for fact in facts.of(f.JobSubmitted)}
    began_s = {fact.job: at_s for at_s, fact in facts if isinstance(fact, f.JobSubmitted)}
    ends_s = [(fact.job, at_s) for at_s, fact in facts if isinstance(fact, f.JobFinished)]
    return JobFigures(
        submitted=len(submitted),
        finished=finished,
        failed=failed,
        running=running,
        waiting=waiting,
        on_demand=len({fact.job for fact in facts.of(f.JobRedirected)}),
        lost=len(submitted) - finished - failed - cancelled - running - waiting,
        attempts=len(dispatched),
        restarts=sum(again.values()),
        cancelled=cancelled,
        restarts_of=dict(sorted(again.items())),
        completion_mean_s=_mean(at_s - began_s[job] for job, at_s in ends_s if job in began_s),
        on_demand_gpu_s=sum(
            ((ended_s if attempt.ended_s is None else attempt.ended_s) - attempt.dispatched_s)
            * gpus.get(attempt.job, 1)
            for attempt in attempts(facts)
            if (host := context.campus.host_by_name.get(attempt.host)) and host.role is Role.ON_DEMAND
        ),
    )


def _migrations(facts: History, ended_s: float, routes: RouteHistory, verdict: FidelityRecord) -> MigrationFigures:
    found, due = notices(facts), overdue(facts, ended_s, routes)
    admitted = sum(notice.admitted_s is not None for notice in found)
    in_time = sum(notice.admitted_s is not None and notice.in_time is True for notice in found)
    excuses, lates = [], []
    for each in due:
        notice, hosts = each.notice, (each.notice.source, each.notice.destination or "")
        missed = partial(MissedDeadline, notice.job, *hosts, notice.at_s)
        if each.excuse is not None:
            excuses.append(missed(each.excuse))
        elif verdict.observed and notice.admitted_s is not None:
            until_s = notice.deadline_s if notice.finished_s is None else notice.finished_s
            lates.append(missed(cause_of(verdict.disturbances, hosts, notice.admitted_s, until_s)))
    downtimes = [fact.downtime_s for fact in facts.of(f.MigrationFinished)]
    return MigrationFigures(
        planned=len(found),
        admitted=admitted,
        in_time=in_time,
        degraded=sum(notice.degraded is not None and notice.in_time is None for notice in found),
        downtime_median_s=quantile(downtimes, 0.5),
        downtime_p90_s=quantile(downtimes, 0.9),
        excused=len(excuses),
        late=len(due) - len(excuses),
        under_notice=admitted - in_time - len(due),
        excuses=excuses,
        late_causes=lates,
    )


def _emergencies(facts: History) -> Emergencies:
    completed = story_of(facts).completed
    # of each attempt that an emergency ended, the next one that ran
    resumed = [
        next((later for later in tries[n:] if later.running_s is not None), None)
        for tries in tries_of(facts).values()
        for n, attempt in enumerate(tries, 1)
        if attempt.how == "emergency"
    ]
    ran = [attempt for attempt in resumed if attempt is not None]
    verified = [completed.get((a.job, a.restore_sequence or 0)) == a.from_step for a in ran]
    # closings that no notice announced; one that is sent again (by a reconnected agent) is the same one
    reclaims, closed, warned = 0, set[str](), set[str]()
    for _, fact in only(facts, (f.HostReclaimed, f.HostReturned)):
        match fact:
            case f.HostReclaimed(host=host, notice_s=notice_s) if notice_s > 0.0:
                warned.add(host)
            case f.HostReclaimed(host=host):
                reclaims += host not in warned and host not in closed
                closed.add(host)
            case f.HostReturned(host=host):
                closed.discard(host)
                warned.discard(host)
    return Emergencies(
        count=len(resumed),
        restored_verified=sum(verified),
        work_lost_s=sum(w.work_s for w in work_lost(facts) if w.cause == "emergency"),
        reclaims=reclaims,
        restarted=sum(attempt.restore_sequence is None for attempt in ran),
        pending=resumed.count(None),
    )


def _interruptions(facts: History) -> Interruptions:
    causes = Counter(a.how for a in attempts(facts) if a.ended_s is not None)
    for over in OVER:
        causes.pop(over, None)
    lost: dict[str, float] = {}
    for work in work_lost(facts):
        if work.work_s:
            lost[work.cause] = lost.get(work.cause, 0.0) + work.work_s
    downtimes = [r.downtime_s for r in facts.of(f.JobRunning) if r.downtime_s is not None]
    each_s = [one.lost_s for one in interruptions(facts)]
    return Interruptions(
        dict(sorted(causes.items())),
        lost,
        quantile(downtimes, 0.5),
        quantile(downtimes, 0.9),
        len(each_s),
        sum(each_s),
        _mean(each_s),
    )


def _lost_time(facts: Sequence[Timed], context: RunContext) -> LostGpuTime:
    found = balances(facts, context)
    parts = {part: sum(balance.lost_s(part) for balance in found.values()) for part in LostPart}
    law, bound = context.reclaims, online_bound(facts, context)
    expected_s = None if law is None else expected_emergencies_s(facts, law, end_s(facts, context.ended_at_s))
    over = unforced = covers = None
    if bound is not None and expected_s is not None and bound.any_s > 0.0:
        paid_s = expected_s + parts[LostPart.PAUSES]
        over = paid_s / bound.any_s
        if bound.within_budgets_s > bound.forced_s:
            unforced = (paid_s - bound.forced_s) / (bound.within_budgets_s - bound.forced_s)
        lost_s = sum(parts.values()) - parts[LostPart.EMERGENCIES] + expected_s
        covers = paid_s / lost_s if lost_s > 0.0 else None
    return LostGpuTime(
        total_s=sum(parts.values()),
        work_lost_s=sum(parts[part] for part in WORK_LOST),
        reference_total_s=sum(balance.reference_lost_s(*LostPart) for balance in found.values()),
        reference_work_lost_s=sum(balance.reference_lost_s(*WORK_LOST) for balance in found.values()),
        **{f"{part}_s": lost_s for part, lost_s in parts.items()},
        expected_emergencies_s=expected_s,
        online_bound_s=None if bound is None else bound.any_s,
        online_bound_within_budgets_s=None if bound is None else bound.within_budgets_s,
        online_bound_forced_s=None if bound is None else bound.forced_s,
        over_online_bound=over,
        over_online_bound_unforced=unforced,
        online_bound_covers=covers,
        begun_s=sum(balance.begun_s for balance in found.values()),
        useful_s=sum(balance.useful_s for balance in found.values()),
        first_starts_s=sum(balance.first_start_s for balance in found.values()),
        by_class={
            name: {str(part): lost_s for part, lost_s in some.items()}
            for name, some in by_class(found, context.scale.bytes).items()
        },
        by_hour={str(part): hours for part, hours in by_hour(found, context.day_s, context.day_start_s).items()},
    )


# ---------------------------------------------------------------- small statistics


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def quantile(values: Sequence[float], q: float) -> float | None:
    """Return the q-quantile by linear interpolation between order statistics; None of nothing."""
    return float(np.quantile(values, q)) if len(values) else None
