"""The journal read back as stories: attempts of jobs, notices and what became of each job on them, where every job is.

Accounting, promises and the page of a run read the facts through this one file, so that they cannot disagree on when an
attempt ends. It ends with the first of: its final checkpoint (the workload was stopped with it), JobStopped,
JobFinished, JobFailed, JobCancelled. It begins when a host is ordered to start it, not when it is reported to run:
between the two it may be running.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, wraps
from math import inf
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

from controller.core.model import facts as f
from testbed.messages import SEQUENCES_PER_ATTEMPT

Timed = tuple[float, f.AnyFact]
More = ParamSpec("More")
Account = TypeVar("Account")
Kind = TypeVar("Kind")

OVER = ("finished", "failed", "cancelled")  # how a job's last attempt may end, and the job with it
SAME_NOTICE_S = 0.1  # two ends of a host's notice that are no further apart are one: a Hello takes a while to arrive


class History(list[Timed]):
    """The facts of a run that is over. Accounts that are marked with `once` are made of it once, and kept with it."""

    @cached_property
    def accounts(self) -> dict[tuple[Any, ...], tuple[Any, Any]]:
        """Accounts that `once` keeps: key -> (other arguments, the account)."""
        return {}

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Return the facts of a kind, in order."""
        return cast("list[Kind]", self._by_kind.get(kind, []))

    @cached_property
    def _by_kind(self) -> dict[type, list[f.AnyFact]]:
        found: dict[type, list[f.AnyFact]] = {}
        for _, fact in self:
            found.setdefault(type(fact), []).append(fact)
        return found


def once(
    account: Callable[Concatenate[Sequence[Timed], More], Account],
) -> Callable[Concatenate[Sequence[Timed], More], Account]:
    """Mark a function that summary, rules, page and tables of a run all ask for."""

    @wraps(account)
    def kept(facts: Sequence[Timed], /, *more: More.args, **named: More.kwargs) -> Account:
        if not isinstance(facts, History):
            return account(facts, *more, **named)
        found = facts.accounts.get(key := (account.__name__, *map(id, more)))
        if found is None:  # what it is made of is kept, too: else another might have its id
            found = facts.accounts[key] = more, account(facts, *more, **named)
        return cast("Account", found[1])

    return kept


def only(facts: Iterable[Timed], kinds: Collection[type]) -> Iterator[Timed]:
    """Return the facts of some kinds, in order: most of a journal is about checkpoints that came and went."""
    return (timed for timed in facts if type(timed[1]) in kinds)


@dataclass(slots=True)
class Attempt:
    """An attempt of a job on one host, in order of dispatch.

    It executed the steps after `from_step` up to `to_step`, as far as the journal proves: by its last known step, by a
    final checkpoint, or by a checkpoint of it that a later attempt begins from.
    """

    job: str  # its name
    attempt: int  # number, from 1
    host: str  # where it ran
    dispatched_s: float  # the host was ordered to start it
    from_step: int = 0  # step that it began at
    to_step: int = 0  # as far as the journal proves
    running_s: float | None = None  # its state was proved
    ended_s: float | None = None  # none: it had not ended
    how: str = ""  # it ended: finished, failed, emergency, deadline, final_checkpoint, ...; empty: it had not
    restore_sequence: int | None = None  # of the checkpoint that it begins from
    downtime_s: float | None = None  # of its job until it ran
    speed: float = 1.0  # of its GPU, over that of a reference GPU


@once
def attempts(facts: Iterable[Timed]) -> list[Attempt]:
    """Return the attempts in order of their dispatch.

    An attempt whose beginning was cut off the journal is known by a checkpoint of it that another begins from: it counts as what
    was executed between the last known step and that, on no host.
    """
    found: dict[tuple[str, int], Attempt] = {}
    latest: dict[str, Attempt] = {}  # of each job
    for at_s, fact in facts:
        match fact:
            case f.JobDispatched(job=job, attempt=number, host=host, restore_step=step):
                before = latest.get(job)
                if fact.restore_sequence is not None:
                    of = job, fact.restore_sequence // SEQUENCES_PER_ATTEMPT
                    if of[1] > 0 and of not in found:
                        from_step = min(step, before.to_step) if before else 0
                        found[of] = Attempt(*of, "", at_s, from_step, ended_s=at_s, how="cut_off")
                    _reached(found.get(of), step)
                begun = Attempt(job, number, host, at_s, step, step, restore_sequence=fact.restore_sequence)
                begun.speed = fact.speed
                latest[job] = found.setdefault((job, number), begun)
            case f.JobRunning(job=job, attempt=number, host=host, step=step):
                begun = Attempt(job, number, host, at_s, step, step, restore_sequence=fact.restored_sequence)
                attempt = found.setdefault((job, number), begun)
                latest[job] = attempt
                attempt.running_s = at_s if attempt.running_s is None else attempt.running_s
                attempt.downtime_s = fact.downtime_s
            case f.JobStopped(job=job, attempt=number, last_step=step):
                _reached(found.get((job, number)), step)
            case f.JobFinished(job=job, attempt=number, step=step) | f.JobCancelled(job=job, attempt=number, step=step):
                _reached(found.get((job, number)), step)
            case f.CheckpointTaken(job=job, attempt=number, step=step, final=True):
                _reached(found.get((job, number)), step)
            case f.WorkLost(job=job, from_step=step):
                _reached(latest.get(job), step)
        ending = end_of_attempt(fact)
        ended = found.get(ending[:2]) if ending else None
        if ending and ended and ended.ended_s is None:
            ended.ended_s, ended.how = at_s, ending[2]
    return list(found.values())


@once
def tries_of(facts: Sequence[Timed]) -> dict[str, list[Attempt]]:
    """Return the attempts of each job, in order of their dispatch."""
    found: dict[str, list[Attempt]] = {}
    for attempt in attempts(facts):
        found.setdefault(attempt.job, []).append(attempt)
    return found


def _reached(attempt: Attempt | None, step: int) -> None:
    if attempt is not None:
        attempt.to_step = max(attempt.to_step, step)


def end_of_attempt(fact: f.AnyFact) -> tuple[str, int, str] | None:
    """(job, attempt, how it ended) if this fact ends an attempt."""
    match fact:
        case f.JobFinished(job=job, attempt=number):
            return job, number, "finished"
        case f.JobFailed(job=job, attempt=number):
            return job, number, "failed"
        case f.JobCancelled(job=job, attempt=number):
            return job, number, "cancelled"
        case f.JobStopped(job=job, attempt=number, cause=cause):
            return job, number, cause
        case f.CheckpointTaken(job=job, attempt=number, final=True):
            return job, number, "final_checkpoint"
    return None


class AttemptSnapshot(NamedTuple):
    """A snapshot that an attempt took; `pause_s`: for which the job stood still, where it was measured."""

    at_s: float
    step: int
    pause_s: float | None


class Copy(NamedTuple):
    """A checkpoint that a host has, from when on."""

    at_s: float
    sequence: int
    step: int
    holder: str


class Story:
    """Jobs, their snapshots, the copies of these and their replicas in the journal, read once."""

    def __init__(self, facts: Iterable[Timed]) -> None:
        self.submitted: dict[str, f.JobSubmitted] = {}
        # job -> when it was cancelled, or failed
        self.over_s: dict[str, float] = {}
        self.snapshots: dict[tuple[str, int], list[AttemptSnapshot]] = {}
        self.copies: dict[str, list[Copy]] = {}
        # (job, attempt) -> (from when, until when) a second GPU was held for it; inf: as long as the attempt lasts
        self.replicas: dict[tuple[str, int], list[tuple[float, float]]] = {}
        self.completed: dict[tuple[str, int], int] = {}  # (job, number of a checkpoint) -> step
        for at_s, fact in facts:
            match fact:
                case f.JobSubmitted(job=job):
                    self.submitted.setdefault(job, fact)
                case f.JobCancelled(job=job) | f.JobFailed(job=job):
                    self.over_s[job] = at_s
                case f.CheckpointTaken(job=job, attempt=attempt, step=step, pause_s=pause_s):
                    self.snapshots.setdefault((job, attempt), []).append(AttemptSnapshot(at_s, step, pause_s))
                case f.CheckpointCompleted(job=job, sequence=number, step=step, holder=holder):
                    self.completed.setdefault((job, number), step)
                    self.copies.setdefault(job, []).append(Copy(at_s, number, step, holder))
                case f.CheckpointHeld(job=job, sequence=number, holder=holder):
                    step = self.completed.get((job, number), 0)
                    self.copies.setdefault(job, []).append(Copy(at_s, number, step, holder))
                case f.ReplicaHeld(job=job, attempt=attempt):
                    self.replicas.setdefault((job, attempt), []).append((at_s, inf))
                case f.ReplicaReleased(job=job, attempt=attempt):
                    if spells := self.replicas.get((job, attempt)):
                        spells[-1] = spells[-1][0], at_s

    def elsewhere(self, attempt: Attempt) -> Iterator[Copy]:
        """Yield the job's copies, but for what only the attempt's own host has of it."""
        for copy in self.copies.get(attempt.job, ()):
            if copy.holder != attempt.host or copy.sequence // SEQUENCES_PER_ATTEMPT != attempt.attempt:
                yield copy


@once
def story_of(facts: Iterable[Timed]) -> Story:
    """Return the story of a run's checkpoints."""
    return Story(facts)


SPANS = {"notice": "under notice", "closed": "with its owner", "silent": "agent lost"}


def turn_of_host(fact: f.AnyFact) -> tuple[str, tuple[str, ...], str, str] | None:
    """Return (host, its SPANS that end, the one that begins or "", the reason) if a fact changes what a host is doing."""
    match fact:
        case f.HostReclaimed(host=host, notice_s=notice_s) if notice_s > 0.0:
            return host, (), "notice", f"notice of {notice_s:.2f} s"
        case f.HostReclaimed(host=host):
            return host, ("notice",), "closed", SPANS["closed"]
        case f.HostReturned(host=host):
            return host, ("notice", "closed"), "", ""
        case f.HostLost(host=host, reason=reason):
            return host, (), "silent", f"agent lost: {reason}"
        case f.HostJoined(host=host, lent=lent):
            return host, ("silent", *(("closed", "notice") if lent else ())), "", ""
    return None


class Where(StrEnum):
    """Whereabouts of a job, as far as the journal proves them."""

    ACCEPTED = "accepted"  # and nothing else is known of it: only the moment of submission may look like this
    WAITING = "waiting"
    ON_HOST = "on a host"
    ON_THE_WAY = "on the way"  # its checkpoint is travelling to the host that will resume it
    INTERRUPTED = "interrupted"  # stopped, and no fact has what is to become of it
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


@once
def whereabouts(facts: Iterable[Timed]) -> dict[str, Where]:
    """Return every job and where it is at the end; only a fact of that proves that it waits or is on the way."""
    places: dict[str, Where] = {}
    latest: dict[str, int] = {}  # attempt that was dispatched, of each job
    for _, fact in facts:
        job = getattr(fact, "job", "")
        attempt, place = getattr(fact, "attempt", latest.get(job, 0)), places.get(job)
        if attempt < latest.get(job, 0) or place in (Where.FINISHED, Where.FAILED, Where.CANCELLED):
            continue
        latest[job] = attempt
        match fact:
            case f.JobSubmitted() if place is None:
                places[job] = Where.ACCEPTED
            case f.JobQueued() | f.JobRedirected() | f.JobWaits():
                places[job] = Where.WAITING
            case f.JobDispatched() | f.JobRunning():
                places[job] = Where.ON_HOST
            case f.JobFinished():
                places[job] = Where.FINISHED
            case f.JobFailed():
                places[job] = Where.FAILED
            case f.JobCancelled():
                places[job] = Where.CANCELLED
            case f.JobStopped(cause="final_checkpoint") | f.CheckpointTaken(final=True):
                places[job] = Where.ON_THE_WAY
            case f.JobStopped():
                places[job] = Where.INTERRUPTED
            case f.Granted() if place is Where.INTERRUPTED:
                places[job] = Where.ON_THE_WAY
    return places


@dataclass(slots=True)
class Notice:
    """A job that was on a host when its owner gave notice."""

    job: str  # its name
    source: str  # host that its owner takes
    at_s: float  # when notice was given
    notice_s: float  # from `at_s` until the host is closed
    destination: str | None = None  # where it was to go; none: nowhere
    admitted_s: float | None = None  # when P3 last admitted it; none: never
    floor_bytes_per_s: float = 0.0  # rate that P3 reserved, or the mean of it
    payload_bytes: int = 0  # of the state that was to be moved
    attempt: int = 0  # that was to be moved
    degraded: str | None = None  # why no migration was feasible, if that was the last word
    finished_s: float | None = None  # the job ran on at its destination
    in_time: bool | None = None  # before the notice was over
    took_s: float | None = None  # from its admission until it ran on
    downtime_s: float | None = None  # from its stop until it ran on
    was_cut: bool = False  # the owner gave notice again, and wants the host sooner

    @property
    def deadline_s(self) -> float:
        """Time at which the owner has the host."""
        return self.at_s + self.notice_s

    @property
    def margin_s(self) -> float | None:
        """Time left of the notice when the job ran on; None if it did not."""
        return None if self.finished_s is None else self.deadline_s - self.finished_s


class _Notices:
    """Collector of notices: `open` are those whose host is under notice now."""

    def __init__(self) -> None:
        self.all: list[Notice] = []
        self.latest: dict[tuple[str, str], Notice] = {}
        self.under_notice: dict[str, tuple[float, float]] = {}
        self.told_anew: set[str] = set()  # hosts whose Hello reported their notice, of which no fact has the length

    def reclaimed(self, at_s: float, fact: f.HostReclaimed) -> None:
        if fact.notice_s <= 0.0:
            self.under_notice.pop(fact.host, None)
            return
        again = fact.host in self.under_notice
        self.under_notice[fact.host] = (at_s, fact.notice_s)
        self.told_anew.discard(fact.host)
        for job in fact.jobs:
            notice = self.latest.get((job, fact.host)) if again else None
            if notice is None:
                self.open(at_s, job, fact.host, fact.notice_s)
            else:
                self._say_again(notice, at_s + fact.notice_s)

    def of(self, at_s: float, job: str, source: str, notice_s: float) -> Notice:
        # a host that registers while its notice runs reports that with its Hello, and no fact but this one has it
        began_s, given_s = self.under_notice.setdefault(source, (at_s, notice_s))
        notice = self.latest.get((job, source))
        if notice is None or notice.deadline_s < began_s:
            return self.open(began_s, job, source, given_s)
        if source in self.told_anew and abs(at_s + notice_s - notice.deadline_s) > SAME_NOTICE_S:
            self._say_again(notice, at_s + notice_s)
        return notice

    def _say_again(self, notice: Notice, deadline_s: float) -> None:
        notice.was_cut |= deadline_s < notice.deadline_s
        notice.notice_s = deadline_s - notice.at_s

    def open(self, at_s: float, job: str, source: str, notice_s: float) -> Notice:
        notice = Notice(job, source, at_s, notice_s)
        self.all.append(notice)
        self.latest[job, source] = notice
        return notice


@once
def notices(facts: Iterable[Timed]) -> list[Notice]:
    """Return every (job, notice), in order. Planned again after a destination was lost, it is still the same one."""
    book = _Notices()
    for at_s, fact in facts:
        match fact:
            case f.HostReclaimed():
                book.reclaimed(at_s, fact)
            case f.HostReturned(host=host) | f.HostJoined(host=host, lent=True):
                book.under_notice.pop(host, None)
            case f.HostJoined(host=host):
                book.told_anew.add(host)
            case f.MigrationAdmitted():
                notice = book.of(at_s, fact.job, fact.source, fact.notice_s)
                notice.destination, notice.admitted_s, notice.degraded = fact.destination, at_s, None
                notice.floor_bytes_per_s, notice.payload_bytes = fact.floor_bytes_per_s, fact.payload_bytes
                notice.attempt = fact.attempt
            case f.MigrationDegraded():
                notice = book.of(at_s, fact.job, fact.source, fact.notice_s)
                notice.degraded, notice.attempt = fact.reason, fact.attempt
            case f.MigrationFinished(job=job, source=source):
                if found := book.latest.get((job, source)):
                    found.destination, found.finished_s, found.in_time = fact.destination, at_s, fact.in_time
                    found.took_s, found.downtime_s = fact.took_s, fact.downtime_s
    return book.all


def end_s(facts: Sequence[Timed], at_least_s: float | None = None) -> float:
    """Return the end of the run: its last fact, or later if it was watched for longer."""
    return max([at_s for at_s, _ in facts[-1:]] + ([] if at_least_s is None else [at_least_s]), default=0.0)
