"""The promises of the design, checked over the journal of a run: what holds is silence, what broke tells its story.

A rule is a function from the facts (in the journal's order) and the run's context to the breaches that it finds; `RULES`
is all of them. Rules trust no summary: the share of a link is compared with the sum of what was granted, a restore
with the checkpoint that it names, an admission with what became of it.

Facts of one transaction carry one time and are one moment: rates are compared between moments, because a new sharing of
the links is written as several facts. (Falls are told before rises, so the senders never exceed it in between.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from msgspec import Struct

from controller.core.model import facts as f
from controller.core.policies.table import Policy
from experiments.results.exemptions import overdue
from experiments.results.history import (
    Notice,
    Timed,
    Where,
    attempts,
    end_of_attempt,
    end_s,
    notices,
    only,
    telling,
    whereabouts,
)
from experiments.results.link_rates import WAYS, LinkRates, RoutesThen
from experiments.results.losses import work_lost
from experiments.results.lost_time import LostPart, balances
from experiments.results.narration import concerns, describe
from experiments.results.run_context import (
    SUPER_PACKET_BYTES,
    WIRE_PER_PAYLOAD,
    RunContext,
    migration_share,
    migration_shares,
    research_shares,
)
from topologies.errors import SpecError
from topologies.spec import CheckpointClass, DirectedLink, Role, TrafficClass
from topologies.units import format_duration, format_rate

RATE_TOLERANCE = 1e-6  # relative: what rounding may add to a sum of rates
ROUNDING_S = 1e-6  # of a sum of seconds
TOLD_S = 3.0  # the longest from the kernel's change of a link to an agent's counters of a window before it
SAMPLE_S = 0.1  # the sampling period behind peak_migration_bytes_per_s
OF_LIVES = frozenset(
    (
        f.JobSubmitted,
        f.JobDispatched,
        f.JobRunning,
        f.JobFinished,
        f.JobFailed,
        f.JobCancelled,
        f.JobStopped,
        f.CheckpointTaken,
        f.ReplicaHeld,
        f.ReplicaReleased,
    )
)
STORY_LINES = 12
MOST_TOLD = 20  # breaches of one rule that are told one by one


class Broken(Struct, frozen=True):
    """A promise that did not hold: which, for whom, and what led to it."""

    rule: str
    subject: str
    story: list[str]


class Breach(Struct, frozen=True):
    """What a rule found: the job, host or link, when, and how."""

    subject: str
    at_s: float
    what: str


Rule = Callable[[Sequence[Timed], RunContext], Iterator[Breach]]


def broken(facts: Sequence[Timed], context: RunContext, few: Sequence[Timed] | None = None) -> list[Broken]:
    """Every breach of every promise, with its story; empty if all held. Any sequence of facts is accepted; `few` are its
    `telling` ones, where they have been picked out already.

    The `TIMED` ones are judged only where the machine kept up: on one that did not, a late process is its doing, and such a
    run is invalid anyway. What the system does not promise (`context.not_promised`) is not judged. Beyond `MOST_TOLD`
    breaches of one rule, the rest are one entry that counts them.
    """
    waived = context.not_promised.keys() | (frozenset() if context.fidelity.valid else TIMED)
    judged = {name: rule for name, rule in RULES.items() if name not in waived}
    few = telling(facts) if few is None else few
    if list(few[-1:]) != list(facts[-1:]):
        few = [*few, *facts[-1:]]  # the last one says when the run ended
    found: list[Broken] = []
    for name, rule in judged.items():
        breaches = list(rule(facts if name in OF_ALL else few, context))
        for breach in breaches[:MOST_TOLD]:
            before = [
                f"{at_s:9.3f} s  {describe(fact)}"
                for at_s, fact in facts
                if at_s <= breach.at_s and concerns(fact, breach.subject)
            ]
            story = [*before[-STORY_LINES:], f"{breach.at_s:9.3f} s  {breach.what}"]
            found.append(Broken(name, breach.subject, story))
        if rest := breaches[MOST_TOLD:]:
            subjects = ", ".join(sorted({breach.subject for breach in rest}))
            words = f"{len(rest)} breaches more, the last at {rest[-1].at_s:.3f} s"
            found.append(Broken(name, subjects, [words]))
    return found


# ---------------------------------------------------------------- jobs


def no_job_is_lost(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """A job that was accepted is finished, failed by itself, cancelled, on a host, on the way to one, or waiting."""
    where = whereabouts(facts)
    ended_s = end_s(facts)
    for _, fact in facts:
        if isinstance(fact, f.JobSubmitted):
            place = where.get(fact.job)
            if place in (None, Where.ACCEPTED, Where.INTERRUPTED):
                yield Breach(fact.job, ended_s, f"nothing is known of it beyond: {place}")


def one_copy_runs(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """No attempt of a job begins before the one before has ended."""
    alive: dict[str, dict[int, str]] = {}
    for at_s, fact in facts:
        match fact:
            case (
                f.JobDispatched(job=job, attempt=attempt, host=host)
                | f.JobRunning(job=job, attempt=attempt, host=host)
            ):
                copies = alive.setdefault(job, {})
                others = [f"attempt {n} on {at}" for n, at in copies.items() if (n, at) != (attempt, host)]
                if others and copies.get(attempt) != host:
                    yield Breach(
                        job, at_s, f"attempt {attempt} begins on {host} while {', '.join(others)} may run"
                    )
                copies[attempt] = host
        if ending := end_of_attempt(fact):
            alive.get(ending[0], {}).pop(ending[1], None)


def attempts_grow(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Each dispatch of a job has a higher attempt number than the last, and only the latest is heard to run."""
    latest: dict[str, int] = {}
    for at_s, fact in facts:
        match fact:
            case f.JobDispatched(job=job, attempt=attempt):
                if attempt <= latest.get(job, 0):
                    yield Breach(
                        job, at_s, f"attempt {attempt} dispatched after attempt {latest.get(job, 0)}"
                    )
                latest[job] = max(attempt, latest.get(job, 0))
            case f.JobRunning(job=job, attempt=attempt) if attempt != latest.get(job):
                yield Breach(job, at_s, f"attempt {attempt} runs, the latest dispatched is {latest.get(job)}")


def finished_is_done(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """A job finishes once, at its last step, and nothing of it starts afterwards."""
    steps: dict[str, int] = {}
    over: set[str] = set()
    for at_s, fact in facts:
        match fact:
            case f.JobSubmitted(job=job):
                steps.setdefault(job, fact.steps)
            case f.JobFinished(job=job):
                if fact.step != steps.get(job):
                    yield Breach(job, at_s, f"finished at step {fact.step} of {steps.get(job)}")
                if job in over:
                    yield Breach(job, at_s, "finished twice")
                over.add(job)
            case f.JobDispatched(job=job) | f.JobRunning(job=job) if job in over:
                yield Breach(job, at_s, f"attempt {fact.attempt} begins though the job has finished")


def cancelled_is_over(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Once its user has cancelled a job nothing of it starts, runs on or finishes, and it ends once, as cancelled."""
    ordered: set[str] = set()
    over: set[str] = set()
    for at_s, fact in facts:
        match fact:
            case f.CancelOrdered(job=job):
                ordered.add(job)
            case f.JobCancelled(job=job):
                if job in over:
                    yield Breach(job, at_s, "cancelled twice")
                ordered.add(job)
                over.add(job)
            case f.JobDispatched(job=job) | f.JobRunning(job=job) if job in ordered:
                yield Breach(job, at_s, f"attempt {fact.attempt} begins though the job was cancelled")
            case f.JobFinished(job=job) | f.JobFailed(job=job) if job in ordered:
                yield Breach(job, at_s, f"{type(fact).__name__}, and it was cancelled")


# ---------------------------------------------------------------- checkpoints


def losses_are_what_was_executed_less_what_was_kept(
    facts: Sequence[Timed], context: RunContext
) -> Iterator[Breach]:
    """The steps that a job is reported to have lost are those of its attempts but the latest, less where that one began.

    And the coordinator says so when it happens: a dispatch from an earlier step than the last known one comes with a
    `WorkLost` of the steps between, at the job's seconds a step.
    """
    step_s: dict[str, float] = {}
    reached: dict[str, int] = {}
    told: dict[tuple[str, int], f.WorkLost] = {}
    for at_s, fact in facts:
        match fact:
            case f.JobSubmitted(job=job):
                step_s.setdefault(job, fact.step_s)
            case f.JobStopped(job=job, last_step=step) | f.CheckpointTaken(job=job, step=step, final=True):
                reached[job] = max(step, reached.get(job, 0))
            case f.WorkLost(job=job, attempt=attempt):
                told[job, attempt] = fact
                lost_s = (fact.from_step - fact.to_step) * step_s.get(job, 0.0)
                if not abs(fact.work_lost_s - lost_s) <= ROUNDING_S:
                    yield Breach(job, at_s, f"{fact.work_lost_s:g} s are said to be lost, {lost_s:g} s are")
            case f.JobDispatched(job=job, attempt=attempt, restore_step=step):
                said = told.pop((job, attempt), None)
                from_step, to_step = (step, step) if said is None else (said.from_step, said.to_step)
                if from_step < reached.get(job, 0) or to_step != step:
                    how = f"from step {from_step} to {to_step}" if said else "nothing"
                    yield Breach(
                        job, at_s, f"it goes from step {reached.get(job, 0)} to {step}, lost is {how}"
                    )
                reached[job] = step
    reported: dict[str, int] = {}
    for lost in work_lost(facts):
        reported[lost.job] = reported.get(lost.job, 0) + lost.steps
    executed: dict[str, list[int]] = {}  # the last one's too
    kept: dict[str, int] = {}
    for each in attempts(facts):
        executed.setdefault(each.job, []).append(each.to_step - each.from_step)
        kept[each.job] = each.from_step
    for job, steps in executed.items():
        truly = sum(steps[:-1]) - kept[job]
        if reported.get(job, 0) != truly:
            words = f"{reported.get(job, 0)} steps are reported lost, executed less kept are {truly}"
            yield Breach(job, end_s(facts), words)


def lost_time_is_what_was_not_used(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """The parts of lost GPU time add up, for each job, to its life and its replica's, less its first start and the work it kept.

    The life is read off the facts themselves: from its first dispatch to its end; to the end of the run if it waits then, to
    its latest snapshot (before any, to its start) if it runs then. And no part is negative, but for what steps are quicker.
    """
    ended_s = end_s(facts, context.ended_at_s)
    lives: dict[str, _Life] = {}
    for at_s, fact in only(facts, OF_LIVES):
        if isinstance(fact, f.JobSubmitted):
            lives.setdefault(fact.job, _Life(fact.step_s))
        elif life := lives.get(getattr(fact, "job", "")):
            life.note(at_s, fact)
    for job, balance in balances(facts, context).items():
        life, lost_s = lives[job], sum(spell.gpu_s for spell in balance.lost)
        truly_s = life.lost_s(ended_s)
        if not abs(lost_s - truly_s) <= ROUNDING_S + RATE_TOLERANCE * abs(truly_s):
            words = (
                f"the parts of its lost GPU time are {lost_s:g} s, it had {truly_s:g} s that it did not use"
            )
            yield Breach(job, ended_s, words)
        for spell in balance.lost:
            if spell.part is not LostPart.UNFINISHED and not spell.gpu_s >= -ROUNDING_S:
                yield Breach(job, spell.until_s, f"{spell.gpu_s:g} s are lost to it as {spell.part}")


@dataclass(slots=True)
class _Life:
    """A job's time on GPUs and its work, fact by fact."""

    step_s: float
    began_s: float | None = None
    dispatched_s: float = 0.0
    # of the latest attempt, while the job is there; None while it waits
    accounted_s: float | None = None
    over_s: float | None = None
    step: int = 0
    first_start_s: float | None = None
    replica_s: float = 0.0
    replica_since_s: float | None = None

    def note(self, at_s: float, fact: f.AnyFact) -> None:
        """The next fact about it."""
        match fact:
            case f.JobDispatched(restore_step=step):
                self.began_s = at_s if self.began_s is None else self.began_s
                self.dispatched_s, self.accounted_s, self.step = at_s, None, step
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
        """What it had and did not use, seconds of a GPU; all that it did is useful, what it did again is not done further."""
        self._release(ended_s)
        until_s = next((s for s in (self.over_s, self.accounted_s) if s is not None), ended_s)
        life_s = until_s - (until_s if self.began_s is None else self.began_s)
        return life_s + self.replica_s - (self.first_start_s or 0.0) - self.step * self.step_s


def checkpoints_complete_once(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """A (job, sequence) is completed at most once, and has further holders only after that."""
    done: set[tuple[str, int]] = set()
    for at_s, fact in only(facts, (f.CheckpointCompleted, f.CheckpointHeld)):
        match fact:
            case f.CheckpointCompleted(job=job, sequence=sequence):
                if (job, sequence) in done:
                    yield Breach(job, at_s, f"checkpoint {sequence} completed twice")
                done.add((job, sequence))
            case f.CheckpointHeld(job=job, sequence=sequence) if (job, sequence) not in done:
                yield Breach(job, at_s, f"{fact.holder} holds checkpoint {sequence}, which never completed")


def restores_are_of_completed_checkpoints(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """A job resumes from a checkpoint that had completed, at that checkpoint's step, or else from step 0.

    It follows that the step is no later than that of the last completed checkpoint.
    """
    restored = {
        (fact.job, fact.restore_sequence if isinstance(fact, f.JobDispatched) else fact.restored_sequence)
        for _, fact in facts
        if isinstance(fact, (f.JobDispatched, f.JobRunning))
    }
    step_of: dict[tuple[str, int], int] = {}
    for at_s, fact in facts:
        match fact:
            case f.CheckpointCompleted(job=job, sequence=sequence) if (job, sequence) in restored:
                step_of.setdefault((job, sequence), fact.step)
            case f.JobDispatched(job=job):
                yield from _restore(at_s, job, fact.restore_sequence, fact.restore_step, step_of)
            case f.JobRunning(job=job):
                yield from _restore(at_s, job, fact.restored_sequence, fact.step, step_of)


def _restore(
    at_s: float, job: str, sequence: int | None, step: int, step_of: dict[tuple[str, int], int]
) -> Iterator[Breach]:
    if sequence is None:
        if step != 0:
            yield Breach(job, at_s, f"begins at step {step} without a checkpoint")
    elif (job, sequence) not in step_of:
        yield Breach(job, at_s, f"resumes from checkpoint {sequence}, which never completed")
    elif step != step_of[job, sequence]:
        held = step_of[job, sequence]
        yield Breach(job, at_s, f"resumes at step {step} from checkpoint {sequence} of step {held}")


def restores_give_the_same_state(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """All attempts that resume from one checkpoint have one state digest."""
    digests: dict[tuple[str, int], str] = {}
    for at_s, fact in facts:
        if isinstance(fact, f.JobRunning) and fact.restored_sequence is not None and fact.digest:
            first = digests.setdefault((fact.job, fact.restored_sequence), fact.digest)
            if first != fact.digest:
                sequence = fact.restored_sequence
                yield Breach(
                    fact.job, at_s, f"checkpoint {sequence} restored as {fact.digest}, before as {first}"
                )


# ---------------------------------------------------------------- what is told


def times_and_costs_are_told_as_they_were(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Downtimes, delays and costs, which summaries take as they are told, are those that the facts around them show.

    A job is counted by paper B at its first dispatch, and at no other: cost 1 and its time in the queue where an owner lends the
    host, cost k and what it had waited before it was sent there on demand.
    """
    submitted: dict[str, float] = {}
    waited: dict[str, float] = {}
    stopped: dict[str, float] = {}  # jobs that do not run -> since when
    down: dict[str, tuple[float, float]] = {}  # jobs -> when they last ran again, and after how long
    counted: set[str] = set()
    for at_s, fact in facts:
        match fact:
            case f.JobSubmitted(job=job):
                submitted.setdefault(job, at_s)
            case f.JobRedirected(job=job, waited_s=waited_s):
                waited[job] = waited_s
            case f.JobDispatched(job=job, host=name) if job in submitted:
                host = context.campus.host_by_name.get(name)
                expected: tuple[float, float] | None = None
                if job not in counted:
                    is_spot = host is None or host.role is Role.VOLUNTEER
                    spot, on_demand = (
                        (1.0, at_s - submitted[job]),
                        (context.on_demand_cost, waited.get(job, 0.0)),
                    )
                    expected = spot if is_spot else on_demand
                counted.add(job)
                told = (fact.cost, fact.delay_s)
                if (None in told) != (expected is None) or not all(
                    a is None or b is None or abs(a - b) <= ROUNDING_S * max(1.0, at_s)
                    for a, b in zip(told, expected or told, strict=True)
                ):
                    yield Breach(job, at_s, f"(cost, delay) are told as {told}, and were {expected}")
            case f.JobStopped(job=job) | f.CheckpointTaken(job=job, final=True):
                stopped.setdefault(job, at_s)
            case f.JobRunning(job=job, downtime_s=downtime_s):
                truly_s = at_s - stopped.pop(job) if job in stopped else None
                down[job] = (at_s, downtime_s or 0.0)
                if truly_s is None or downtime_s is None:
                    if truly_s is not downtime_s:
                        yield Breach(
                            job, at_s, f"its downtime is told as {downtime_s} s, and was {truly_s} s"
                        )
                    continue
                if abs(downtime_s - truly_s) > ROUNDING_S:
                    yield Breach(
                        job, at_s, f"its downtime is told as {downtime_s:g} s, and was {truly_s:g} s"
                    )
            case f.MigrationFinished(job=job) if job in down:
                ran_s, downtime_s = down[job]
                if ran_s != at_s or abs(fact.downtime_s - downtime_s) > ROUNDING_S:
                    words = f"its migration cost {fact.downtime_s:g} s, and it ran again at {ran_s:.3f} s after {downtime_s:g} s"
                    yield Breach(job, at_s, words)


def notices_are_told_as_they_went(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """What a migration is said to be, it was: admitted before it finished, and in time only before its notice was over.

    A job that ran when a notice came and was ended by it was moved, or it was said that it could not be. An end is the deadline's
    only where there was a notice, and an emergency only where there was none.

    Nothing is said of jobs of a host that could not be told, nor of any after a restart of the coordinator.
    """
    admitted: set[tuple[str, str, str]] = set()  # (job, source, destination)
    told: set[tuple[str, int]] = set()  # attempts of which it was said that they move, or that they cannot
    for at_s, fact in only(facts, (f.MigrationAdmitted, f.MigrationDegraded, f.MigrationFinished)):
        match fact:
            case f.MigrationAdmitted():
                admitted.add((fact.job, fact.source, fact.destination))
                told.add((fact.job, fact.attempt))
            case f.MigrationDegraded():
                told.add((fact.job, fact.attempt))
            case f.MigrationFinished(job=job, source=source, destination=to) if (
                job,
                source,
                to,
            ) not in admitted:
                yield Breach(
                    job, at_s, f"it is said to have moved from {source} to {to}, and it was not admitted"
                )
    silent: dict[tuple[str, str], list[Notice]] = {}
    for notice in notices(facts):
        if notice.admitted_s is None:
            silent.setdefault((notice.job, notice.source), []).append(notice)
        elif notice.in_time and notice.finished_s and notice.finished_s > notice.deadline_s + ROUNDING_S:
            words = f"it is said to have moved in time, {notice.finished_s - notice.deadline_s:.3f} s after the notice was over"
            yield Breach(notice.job, notice.finished_s, words)
    cut_short = [
        (at_s, getattr(fact, "host", ""))
        for at_s, fact in only(facts, (f.HostLost, f.HostReturned, f.CoordinatorRestarted))
    ]
    for each in attempts(facts):
        for notice in silent.get((each.job, each.host), ()):
            if each.how != "deadline" or each.running_s is None or each.ended_s is None:
                continue
            if (each.job, each.attempt) in told:
                continue
            if not each.running_s <= notice.deadline_s or not notice.at_s <= each.ended_s:
                continue
            from_s = max(each.running_s, notice.at_s)
            if not any(notice.at_s <= at_s <= each.ended_s and h in ("", each.host) for at_s, h in cut_short):
                words = (
                    f"{each.host} was to go with {notice.notice_s:g} s of notice, and nothing was said of it"
                )
                yield Breach(each.job, from_s, words)
    # hosts -> whether a notice runs there; None: its agent has said so, or nothing
    warned: dict[str, bool | None] = {}
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


# ---------------------------------------------------------------- rates


def grants_stay_within_the_share(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """At every moment, what is granted over a link is no more than what migrations may use of it.

    Where checkpoints are below research, that holds for all else that is granted, and no stream of theirs is granted more than
    the link has. Where they borrow, all together are granted no more than that, or than migrations and those streams take
    whose senders cannot be told of it.
    """
    account = _GrantAccount(context)
    kinds = (f.Granted, f.GrantEnded, *WAYS, f.HostLost, f.HostJoined)
    for at_s, moment in groupby(only(facts, kinds), key=lambda timed: timed[0]):
        changed: set[DirectedLink] = set()
        for _, fact in moment:
            try:
                changed |= account.note(at_s, fact)
            except SpecError as error:
                yield Breach(getattr(fact, "job", ""), at_s, f"a grant that has no route: {error}")
        for link, over in sorted((str(link), over) for link in changed if (over := account.excess(link))):
            yield Breach(link, at_s, over)


class _GrantAccount:
    """The grants in force on each link, payload bytes/s."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._routes = RoutesThen(context.campus)
        self._share = dict(context.share)
        self._changed: set[DirectedLink] = set()  # links that have not their described rate any more
        self._lost: set[str] = set()  # hosts that cannot be told anything: they keep the rate that they have
        self._rates: dict[tuple[str, str, str], float] = {}
        self._yielding: set[tuple[str, str, str]] = set()  # flows that may exceed the share
        self._whole = migration_shares(context.campus, keeps_reserve=False)
        self._on: dict[DirectedLink, dict[tuple[str, str, str], float]] = {}

    def note(self, at_s: float, fact: f.AnyFact) -> set[DirectedLink]:
        """Take in a fact; returns the links on which grants rose. SpecError: the campus has no such hosts."""
        match fact:
            case f.LinkChanged(source, target, rate):
                link, keeps = DirectedLink(source, target), self._context.keeps_reserve
                self._share[link] = migration_share(self._context.campus, rate, keeps_reserve=keeps)
                self._whole[link] = migration_share(self._context.campus, rate, keeps_reserve=False)
                self._changed.add(link)
            case f.HostLost(host=host):
                self._lost.add(host)
            case f.HostJoined(host=host):
                self._lost.discard(host)
        if self._routes.note(at_s, fact):  # grants are in force on other links from now on
            self._on.clear()
            for flow, granted in self._rates.items():
                for each in self._routes.history.latest.way(flow[1], flow[2]):
                    self._on.setdefault(each, {})[flow] = granted
            self._changed |= self._on.keys()
            return set(self._on)
        if not isinstance(fact, f.Granted | f.GrantEnded):
            return set()
        flow = (fact.job, fact.source, fact.destination)
        way = self._routes.history.latest.way(fact.source, fact.destination)
        if isinstance(fact, f.GrantEnded):
            self._rates.pop(flow, None)
            self._yielding.discard(flow)
            for link in way:
                self._on.get(link, {}).pop(flow, None)
            return set()
        self._rates[flow] = fact.rate_bytes_per_s
        may_exceed = self._context.checkpoints is not CheckpointClass.SHARE
        yields = may_exceed and fact.traffic_class == TrafficClass.PRESYNC
        (self._yielding.add if yields else self._yielding.discard)(flow)
        for link in way:
            self._on.setdefault(link, {})[flow] = fact.rate_bytes_per_s
        return set(way)

    def excess(self, link: DirectedLink) -> str | None:
        """What is wrong on a link, if anything is. (Written so that a rate that is no number is wrong too.)"""
        flows = self._on.get(link, {})
        if link in self._changed:  # a sender that cannot be told of it keeps the rate that fitted before
            flows = {flow: rate for flow, rate in flows.items() if flow[1] not in self._lost}
        held = {flow: rate for flow, rate in flows.items() if flow not in self._yielding}
        granted, share = sum(held.values()), self._share.get(link, 0.0)
        if granted <= share * (1.0 + RATE_TOLERANCE):
            # of those below research each may be granted the whole link, where they may borrow all together
            streams = {flow: rate for flow, rate in flows.items() if flow in self._yielding}
            share = self._whole.get(link, 0.0)
            if self._context.checkpoints is CheckpointClass.BORROW:
                # one whose sender cannot be told keeps its rate, and yields on the wire to migrations admitted meanwhile
                kept = sum(rate for flow, rate in streams.items() if flow[1] in self._lost)
                share = max(share, granted + kept)
                granted += sum(streams.values())
            else:
                granted = max(streams.values(), default=0.0)
            if granted <= share * (1.0 + RATE_TOLERANCE):
                return None
        named = ", ".join(f"{job} {a}->{b} {format_rate(rate)}" for (job, a, b), rate in flows.items())
        return f"{format_rate(granted)} granted where {format_rate(share)} may be: {named}"


def migrations_leave_within_the_share(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """What the kernel counted leaving a host in migration classes is within its access link's share (wire bytes).

    Checkpoints that may exceed the share (`CheckpointClass`) are not counted there, and with all else within the link's rate.
    Allowed in a window are the rate of the host's aggregate bucket times the window, its burst, and one super-packet of
    debt; for the peak the window is one sample.
    """
    rates = LinkRates(context.campus, facts)
    for at_s, fact in facts:
        if not isinstance(fact, f.EgressMeasured):
            continue
        if fact.host not in context.campus.host_by_name:
            yield Breach(fact.host, at_s, "egress of a host that the campus does not have")
            continue
        link = context.campus.access_link(fact.host)
        up = DirectedLink(fact.host, link.b if link.a == fact.host else link.a)
        # counters lie a heartbeat back, and the kernel's change a moment before the coordinator's word of it
        _, fastest = rates.extremes(up, at_s - fact.window_s - TOLD_S, at_s + TOLD_S)
        share = migration_share(context.campus, fastest, keeps_reserve=context.keeps_reserve)
        if context.keeps_reserve and fastest == context.campus.capacity_bytes_per_s.get(up):
            share = context.share.get(up, 0.0)
        whole = migration_share(context.campus, fastest, keeps_reserve=False)
        for what, most, size, window_s in (
            ("migration bytes sent", share, fact.held_bytes, fact.window_s),
            ("peak of migration bytes sent", share, fact.peak_held_bytes_per_s * SAMPLE_S, SAMPLE_S),
            ("bytes of migrations and checkpoints sent", whole, fact.migration_bytes, fact.window_s),
            ("peak of both", whole, fact.peak_migration_bytes_per_s * SAMPLE_S, SAMPLE_S),
        ):
            rate = most * WIRE_PER_PAYLOAD * context.guard_slack
            burst = max(context.guard_burst_bytes, rate * context.guard_burst_s) + SUPER_PACKET_BYTES
            allowed = rate * window_s + burst
            if not size <= allowed * (1.0 + RATE_TOLERANCE):
                yield Breach(
                    fact.host, at_s, f"{what}: {size:.0f} bytes in {window_s:.3g} s, at most {allowed:.0f}"
                )


def admitted_migrations_are_in_time(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """A migration that was admitted runs on at its destination within the notice.

    Not judged are those whose notice still ran when the run ended, and those that `excuses` names.
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


# ---------------------------------------------------------------- what others measured


def research_keeps_its_reserve(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """While a greedy research flow runs, research gets the reserve of its narrowest link, less the tolerance."""
    for measured in research_shares(context):
        sample = measured.sample
        least = sample.reserve_bytes_per_s * (1.0 - context.research_tolerance)
        if not measured.wire_bytes_per_s >= least:
            got, kept = format_rate(measured.wire_bytes_per_s), format_rate(sample.reserve_bytes_per_s)
            words = f"research got {got} where {kept} are kept for it"
            yield Breach(f"{sample.source}>{sample.target}", sample.at_s, words)


def closed_hosts_admit_nobody(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """After the kill-switch call has returned, no new connection gets in."""
    for probe in context.switches:
        if probe.connections_admitted > 0:
            admitted, tried = probe.connections_admitted, probe.connections_tried
            yield Breach(
                probe.host, probe.at_s, f"{admitted} of {tried} connections got in after {probe.kind}"
            )


COMPLETED_ONCE = "a checkpoint completes at most once"
OF_COMPLETED = "a restore uses a completed checkpoint, at its step"
GRANTED = "grants stay within a link's migration share"
ADDS_UP = "lost GPU time is what jobs had and did not use"
IN_SHARE = "migration traffic stays within the host's share"
IN_TIME = "an admitted migration is in time"
RESERVED = "research keeps its reserve"
TIMES_TOLD = "times and costs are told as they were"
NOTICES_TOLD = "notices are told as they went"

RULES: dict[str, Rule] = {
    "a job that was accepted is never lost": no_job_is_lost,
    "at most one copy of a job runs": one_copy_runs,
    "attempts grow": attempts_grow,
    "a finished job has done all its steps, once": finished_is_done,
    "a cancelled job never computes again": cancelled_is_over,
    "reported loss is what was executed less what was kept": losses_are_what_was_executed_less_what_was_kept,
    ADDS_UP: lost_time_is_what_was_not_used,
    COMPLETED_ONCE: checkpoints_complete_once,
    OF_COMPLETED: restores_are_of_completed_checkpoints,
    "a checkpoint restores to one state": restores_give_the_same_state,
    TIMES_TOLD: times_and_costs_are_told_as_they_were,
    NOTICES_TOLD: notices_are_told_as_they_went,
    GRANTED: grants_stay_within_the_share,
    IN_SHARE: migrations_leave_within_the_share,
    IN_TIME: admitted_migrations_are_in_time,
    RESERVED: research_keeps_its_reserve,
    "a closed host admits nobody": closed_hosts_admit_nobody,
}

TIMED = frozenset({IN_SHARE, IN_TIME, RESERVED})
OF_ALL = frozenset({ADDS_UP, COMPLETED_ONCE, OF_COMPLETED, GRANTED})  # look at more than `telling` facts


def not_promised(row: Policy) -> dict[str, str]:
    """The rules that a system does not promise to keep, and why: a baseline is not blamed for what it never said."""
    waived = {}
    if not row.enforced:
        waived[IN_SHARE] = "nothing holds its senders to a share of a link"
        waived[RESERVED] = "it keeps no reserve for research"
    if not row.reserves_rates:
        waived[IN_TIME] = "it promises no migration a rate"
    return waived
