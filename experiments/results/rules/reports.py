"""Rules about reports: losses, times, costs and notices are those that the facts around them show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from controller.core.model import facts as f
from experiments.results.history import Notice, Timed, attempts, end_s, notices, only
from experiments.results.lost_time import LostPart, balances
from experiments.results.rules.breach import RATE_TOLERANCE, ROUNDING_S, Breach
from experiments.results.run_context import RunContext
from topologies.spec import Role


def losses_are_what_was_executed_less_what_was_kept(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Check lost steps: those of a job's attempts but the latest, less the step where that one began.

    They are reported when it happens: a dispatch from an earlier step than the last known one comes with a `WorkLost`.
    It has the steps between, at the job's seconds of a GPU a step.
    """
    step_s: dict[str, float] = {}
    reached: dict[str, int] = {}
    told: dict[tuple[str, int], f.WorkLost] = {}
    for at_s, fact in facts:
        match fact:
            case f.JobSubmitted(job=job):
                step_s.setdefault(job, fact.step_s * fact.gpus)
            case f.JobStopped(job=job, last_step=step) | f.CheckpointTaken(job=job, step=step, final=True):
                reached[job] = max(step, reached.get(job, 0))
            case f.WorkLost(job=job, attempt=attempt):
                told[job, attempt] = fact
                lost_s = (fact.from_step - fact.to_step) * step_s.get(job, 0.0)
                if not abs(fact.work_lost_s - lost_s) <= ROUNDING_S:
                    yield Breach(job, at_s, f"{fact.work_lost_s:g} s are reported lost, {lost_s:g} s are")
            case f.JobDispatched(job=job, attempt=attempt, restore_step=step):
                said = told.pop((job, attempt), None)
                from_step, to_step = (step, step) if said is None else (said.from_step, said.to_step)
                if from_step < reached.get(job, 0) or to_step != step:
                    how = f"from step {from_step} to {to_step}" if said else "nothing"
                    yield Breach(job, at_s, f"it goes from step {reached.get(job, 0)} to {step}, lost is {how}")
                reached[job] = step


def lost_time_is_what_was_not_used(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Check that of each job useful steps, its first start and the parts of its loss add up to its life; no part is negative."""
    ended_s = end_s(facts, context.ended_at_s)
    for job, balance in balances(facts, context).items():
        lost_s = sum(spell.gpu_s for spell in balance.lost)
        truly_s = balance.begun_s - balance.useful_s - balance.first_start_s
        if not abs(lost_s - truly_s) <= ROUNDING_S + RATE_TOLERANCE * abs(truly_s):
            words = f"the parts of its lost GPU time are {lost_s:g} s, it had {truly_s:g} s that it did not use"
            yield Breach(job, ended_s, words)
        for spell in balance.lost:
            if spell.part is not LostPart.UNFINISHED and not spell.gpu_s >= -ROUNDING_S:
                yield Breach(job, spell.until_s, f"{spell.gpu_s:g} s are lost to it as {spell.part}")


def reports_are_true(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Check downtimes, delays, costs and notices, which summaries take as they are reported."""
    yield from _times_and_costs(facts, context)
    yield from _moves(facts)
    yield from _notices_answered(facts)
    yield from _causes(facts)


def _times_and_costs(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Check costs and delays of first dispatches, and downtimes.

    Paper B counts a job once, at its first dispatch. Where an owner lends the host, that is cost 1 a GPU and the time in
    the queue; on demand, cost k a GPU and what it had waited before it was sent there.
    """
    submitted: dict[str, float] = {}
    gpus: dict[str, int] = {}
    waited: dict[str, float] = {}
    stopped: dict[str, float] = {}  # jobs that do not run -> since when
    down: dict[str, tuple[float, float]] = {}  # jobs -> when they last ran again, and after how long
    counted: set[str] = set()
    for at_s, fact in facts:
        match fact:
            case f.JobSubmitted(job=job):
                submitted.setdefault(job, at_s)
                gpus.setdefault(job, fact.gpus)
            case f.JobRedirected(job=job, waited_s=waited_s):
                waited[job] = waited_s
            case f.JobDispatched(job=job, host=name) if job in submitted:
                host = context.campus.host_by_name.get(name)
                truly: tuple[float | None, float | None] = (None, None)
                if job not in counted and (host is None or host.role is Role.VOLUNTEER):
                    truly = (1.0 * gpus[job], at_s - submitted[job])
                elif job not in counted:
                    truly = (context.on_demand_cost * gpus[job], waited.get(job, 0.0))
                counted.add(job)
                reported = (fact.cost, fact.delay_s)
                if not all(map(_same, reported, truly, (ROUNDING_S * max(1.0, at_s),) * 2)):
                    yield Breach(job, at_s, f"(cost, delay) are reported as {reported}, and were {truly}")
            case f.JobStopped(job=job) | f.CheckpointTaken(job=job, final=True):
                stopped.setdefault(job, at_s)
            case f.JobRunning(job=job, downtime_s=downtime_s):
                truly_s = at_s - stopped.pop(job) if job in stopped else None
                down[job] = (at_s, downtime_s or 0.0)
                if not _same(downtime_s, truly_s, ROUNDING_S):
                    yield Breach(job, at_s, f"its downtime is reported as {downtime_s} s, and was {truly_s} s")
            case f.MigrationFinished(job=job) if job in down:
                ran_s, downtime_s = down[job]
                if ran_s != at_s or abs(fact.downtime_s - downtime_s) > ROUNDING_S:
                    words = f"its migration cost {fact.downtime_s:g} s, and it ran again at {ran_s:.3f} s after {downtime_s:g} s"
                    yield Breach(job, at_s, words)


def _same(reported: float | None, truly: float | None, within: float) -> bool:
    if reported is None or truly is None:
        return reported is truly
    return abs(reported - truly) <= within


def _moves(facts: Sequence[Timed]) -> Iterator[Breach]:
    """Check that a migration was admitted before it finished, and in time only before its notice was over."""
    admitted: set[tuple[str, str, str]] = set()  # (job, source, destination)
    for at_s, fact in only(facts, (f.MigrationAdmitted, f.MigrationFinished)):
        assert isinstance(fact, f.MigrationAdmitted | f.MigrationFinished)
        move = (fact.job, fact.source, fact.destination)
        if isinstance(fact, f.MigrationAdmitted):
            admitted.add(move)
        elif move not in admitted:
            words = f"it is reported to have moved from {fact.source} to {fact.destination}, and was not admitted"
            yield Breach(fact.job, at_s, words)
    for notice in notices(facts):
        if notice.admitted_s is not None and notice.in_time and notice.finished_s:
            late_s = notice.finished_s - notice.deadline_s
            if late_s > ROUNDING_S:
                words = f"it is reported to have moved in time, {late_s:.3f} s after the notice was over"
                yield Breach(notice.job, notice.finished_s, words)


def _notices_answered(facts: Sequence[Timed]) -> Iterator[Breach]:
    """Check that a job which ran when a notice came and was ended by it was moved, or reported as one that could not be.

    Excepted are jobs of a host that could not be reached, and all jobs after a restart of the coordinator.
    """
    answers = only(facts, (f.MigrationAdmitted, f.MigrationDegraded))
    answered = {(getattr(fact, "job", ""), getattr(fact, "attempt", 0)) for _, fact in answers}
    unanswered: dict[tuple[str, str], list[Notice]] = {}
    for notice in notices(facts):
        if notice.admitted_s is None:
            unanswered.setdefault((notice.job, notice.source), []).append(notice)
    cut_short = [
        (at_s, getattr(fact, "host", ""))
        for at_s, fact in only(facts, (f.HostLost, f.HostReturned, f.CoordinatorRestarted))
    ]
    for each in attempts(facts):
        if each.how != "deadline" or each.running_s is None or each.ended_s is None:
            continue
        for notice in unanswered.get((each.job, each.host), ()):
            if (each.job, each.attempt) in answered:
                continue
            ran = each.running_s <= notice.deadline_s and notice.at_s <= each.ended_s
            if ran and not any(
                notice.at_s <= at_s <= each.ended_s and host in ("", each.host) for at_s, host in cut_short
            ):
                words = f"{each.host} was to go with {notice.notice_s:g} s of notice, and nothing was reported of it"
                yield Breach(each.job, max(each.running_s, notice.at_s), words)


def _causes(facts: Sequence[Timed]) -> Iterator[Breach]:
    """Check that an end is the deadline's only where there was a notice, and an emergency only where there was none."""
    warned: dict[str, bool | None] = {}  # hosts -> whether a notice runs there; None: only its agent knows
    for at_s, fact in facts:
        match fact:
            case f.HostReclaimed(host=host, notice_s=notice_s) if notice_s > 0.0:
                warned[host] = True
            case f.HostReturned(host=host):
                warned[host] = False
            case f.HostJoined(host=host, lent=lent):
                warned[host] = False if lent else None
            case f.JobStopped(job=job, host=host, cause="emergency" | "deadline" as cause):
                expected = warned.get(host, False)
                if expected is not None and expected is not (cause == "deadline"):
                    words = f"it was ended as by {cause}, and {host} had {'a' if expected else 'no'} notice"
                    yield Breach(job, at_s, words)
