"""A fact in words, for people who watch a run or read its story."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from controller.core.model import facts as f
from topologies.units import format_duration, format_rate, format_size

T = TypeVar("T", bound=f.Fact)
_SENTENCES: dict[type[f.Fact], Callable[[Any], str | None]] = {}

CAUSES = {
    "emergency": "the owner took the host without notice",
    "deadline": "the notice ran out",
    "agent_lost": "its host fell silent",
    "final_checkpoint": "final checkpoint taken",
    "failed_start": "it could not start",
    "killed": "its process was killed from outside",
    "stopped": "stopped by the coordinator",
    "superseded": "a better checkpoint has come into reach",
    "destination_lost": "the host it was going to was lost",
    "checkpoint_lost": "nobody can send its checkpoint any more",
}


def sentence(fact: f.Fact) -> str | None:
    """What happened, in words; None for the facts that only matter in numbers (repeated grants, counters, plans)."""
    write = _SENTENCES.get(type(fact))
    return write(fact) if write else None


def describe(fact: f.Fact) -> str:
    """What happened, in words where there are any, else in short, else the record itself."""
    return sentence(fact) or _detail(fact) or msgspec.json.encode(fact).decode()


def _detail(fact: f.Fact) -> str | None:
    match fact:
        case f.CheckpointTaken(job=job, sequence=sequence, step=step):
            kind = "final snapshot" if fact.final else "snapshot"
            return f"{job}: {kind} {sequence} of step {step} on its own host"
        case f.Granted(job=job, source=source, destination=destination):
            rate = format_rate(fact.rate_bytes_per_s)
            return f"{job} {source} -> {destination} granted {rate} ({fact.traffic_class}, binding {fact.bottleneck or 'none'})"
        case f.GrantEnded(job=job, source=source, destination=destination):
            return f"{job} {source} -> {destination} grant ended"
        case f.TransferFinished(job=job, source=source, destination=destination):
            size, took = format_size(fact.bytes_sent), format_duration(fact.duration_s)
            return f"{job} {source} -> {destination} checkpoint {fact.sequence} sent: {size} in {took}"
        case f.CheckpointHeld(job=job, sequence=sequence, holder=holder):
            return f"{job}: {holder} holds checkpoint {sequence} too"
        case f.CheckpointPlanned(job=job, standby=standby):
            return f"{job}: a checkpoint every {format_duration(fact.interval_s)} to {standby}"
    return None


def concerns(fact: f.Fact, subject: str) -> bool:
    """Whether a job or a host is a part of the fact."""
    named = (getattr(fact, name, None) for name in ("job", "host", "source", "destination", "holder"))
    return subject in named or subject in getattr(fact, "jobs", ())


def _of(kind: type[T]) -> Callable[[Callable[[T], str | None]], Callable[[T], str | None]]:
    def register(write: Callable[[T], str | None]) -> Callable[[T], str | None]:
        _SENTENCES[kind] = write
        return write

    return register


@_of(f.JobSubmitted)
def _submitted(fact: f.JobSubmitted) -> str:
    length = format_duration(fact.steps * fact.step_s)
    return f"{fact.job} submitted: {length} of work, {format_size(fact.payload_bytes)} of state"


@_of(f.JobQueued)
def _queued(fact: f.JobQueued) -> str:
    return f"{fact.job} joins the queue, {fact.ahead} ahead (r = {fact.level:.2f})"


@_of(f.JobRedirected)
def _redirected(fact: f.JobRedirected) -> str:
    if fact.waited_s:
        return f"{fact.job} leaves the queue for on-demand after {format_duration(fact.waited_s)} of waiting"
    return f"{fact.job} goes to on-demand: {fact.ahead} wait already (r = {fact.level:.2f})"


@_of(f.JobDispatched)
def _dispatched(fact: f.JobDispatched) -> str:
    if fact.restore_sequence is not None:
        return f"{fact.job} resumes on {fact.host} from step {fact.restore_step} (attempt {fact.attempt})"
    waited = f" after {format_duration(fact.delay_s)} of waiting" if fact.delay_s else ""
    again = f", again from step 0 (attempt {fact.attempt})" if fact.attempt > 1 else ""
    return f"{fact.job} starts on {fact.host}{waited}{again}"


@_of(f.JobRunning)
def _running(fact: f.JobRunning) -> str:
    proved = "its state is proved by hash" if fact.restored_sequence is not None else "from the beginning"
    down = f", down for {format_duration(fact.downtime_s)}" if fact.downtime_s is not None else ""
    return f"{fact.job} runs on {fact.host} at step {fact.step}: {proved}{down}"


@_of(f.JobFinished)
def _finished(fact: f.JobFinished) -> str:
    return f"{fact.job} finished on {fact.host} at step {fact.step}"


@_of(f.JobFailed)
def _failed(fact: f.JobFailed) -> str:
    return f"{fact.job} failed on {fact.host}: {fact.reason}"


@_of(f.JobStopped)
def _stopped(fact: f.JobStopped) -> str:
    why = CAUSES.get(fact.cause, fact.cause.replace("_", " "))
    return f"{fact.job} stopped on {fact.host} at step {fact.last_step}: {why}"


@_of(f.WorkLost)
def _work_lost(fact: f.WorkLost) -> str | None:
    steps = fact.from_step - fact.to_step
    return (
        f"{fact.job} loses {steps} steps ({format_duration(fact.work_lost_s)} of work)" if steps > 0 else None
    )


@_of(f.WorkTakenUp)
def _taken_up(fact: f.WorkTakenUp) -> str:
    return f"{fact.job} need not compute {format_duration(fact.work_s)} of work again after all: on from step {fact.to_step}"


@_of(f.JobWaits)
def _waits(fact: f.JobWaits) -> str:
    return f"{fact.job} goes to the head of the queue: {fact.reason}"


@_of(f.CheckpointCompleted)
def _completed(fact: f.CheckpointCompleted) -> str:
    size = format_size(fact.payload_bytes)
    return f"{fact.job}: checkpoint of step {fact.step} ({size}) verified and on disk at {fact.holder}"


@_of(f.CheckpointRefused)
def _refused(fact: f.CheckpointRefused) -> str:
    return f"what {fact.holder} says it holds of {fact.job} counts for nothing: {fact.reason}"


@_of(f.TransferFinished)
def _transfer(fact: f.TransferFinished) -> str | None:
    if fact.ok:
        return None
    return f"{fact.job}: transfer {fact.source} -> {fact.destination} broke off: {fact.reason}"


@_of(f.HostJoined)
def _joined(fact: f.HostJoined) -> str:
    return f"{fact.host}: agent registered" + ("" if fact.lent else ", the owner keeps the host")


@_of(f.HostLost)
def _lost(fact: f.HostLost) -> str:
    jobs = f"; {_several(fact.jobs)} fenced until the lease has lapsed" if fact.jobs else ""
    return f"{fact.host}: agent lost ({fact.reason}){jobs}"


@_of(f.CoordinatorRestarted)
def _restarted(fact: f.CoordinatorRestarted) -> str:
    waits = f"; it waits for {len(fact.hosts)} agents" if fact.hosts else ""
    return f"the coordinator begins again from its journal, {format_duration(fact.silent_s)} after its last event{waits}"


@_of(f.HostReclaimed)
def _reclaimed(fact: f.HostReclaimed) -> str:
    jobs = f", {_several(fact.jobs)} there" if fact.jobs else ""
    if fact.notice_s > 0.0:
        return f"{fact.host}: owner reclaims in {format_duration(fact.notice_s)}{jobs}"
    return f"{fact.host}: closed by its owner{jobs}"


@_of(f.HostReturned)
def _returned(fact: f.HostReturned) -> str:
    return f"{fact.host}: lent again, a spot offer"


@_of(f.OfferLapsed)
def _lapsed(fact: f.OfferLapsed) -> str:
    return f"{fact.host}: the offer lapsed unused"


@_of(f.MigrationAdmitted)
def _admitted(fact: f.MigrationAdmitted) -> str:
    rate, size = format_rate(fact.floor_bytes_per_s), format_size(fact.payload_bytes)
    return f"{fact.job} moves {fact.source} -> {fact.destination}: {size} admitted at {rate} on average"


@_of(f.MigrationDegraded)
def _degraded(fact: f.MigrationDegraded) -> str:
    return f"{fact.job} cannot be moved from {fact.source} in time: {fact.reason}"


@_of(f.MigrationFinished)
def _moved(fact: f.MigrationFinished) -> str:
    when = "in time" if fact.in_time else "too late"
    took, down = format_duration(fact.took_s), format_duration(fact.downtime_s)
    return f"{fact.job} runs on at {fact.destination} {when}: moved in {took}, down for {down}"


@_of(f.LevelLearned)
def _learned(fact: f.LevelLearned) -> str:
    return f"queue level r is now {fact.level:.3f}"


def _several(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


QUIET = (
    f.JobSubmitted,
    f.JobQueued,
    f.JobDispatched,
    f.JobRunning,
    f.CheckpointCompleted,
    f.HostJoined,
    f.OfferLapsed,
    f.LevelLearned,
)


def notable(fact: f.Fact) -> bool:
    """Whether a watcher wants to read it at once: owners, moves, losses and ends, not the daily business."""
    if isinstance(fact, f.JobRunning):
        return fact.restored_sequence is not None
    if isinstance(fact, f.JobStopped):
        return fact.cause != "final_checkpoint"
    return not isinstance(fact, QUIET)


class Narrator:
    """Tells a run in order; beyond `sentence`, the first grant of a migration says its rate and the link that binds it."""

    def __init__(self) -> None:
        self._announced: set[tuple[str, str, str]] = set()

    def tell(self, fact: f.Fact) -> str | None:
        """The sentence for the next fact, if it deserves one."""
        if isinstance(fact, f.GrantEnded):
            self._announced.discard((fact.job, fact.source, fact.destination))
        if isinstance(fact, f.Granted) and fact.floor_bytes_per_s > 0.0:
            return self._first_grant(fact)
        return sentence(fact)

    def _first_grant(self, fact: f.Granted) -> str | None:
        flow = (fact.job, fact.source, fact.destination)
        if flow in self._announced:
            return None
        self._announced.add(flow)
        binding = f"binding {fact.bottleneck}" if fact.bottleneck else "its own cap binds"
        return f"{fact.job} {fact.source} -> {fact.destination} granted {format_rate(fact.rate_bytes_per_s)} ({binding})"
