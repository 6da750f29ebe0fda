"""A fact in words, for the lines of a run and for its story."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from controller.core.model import facts as f
from topologies.units import format_duration, format_level, format_rate, format_size

CAUSES = {
    "emergency": "the owner took the host without notice",
    "deadline": "the notice ran out",
    "agent_lost": "its host fell silent",
    "final_checkpoint": "final checkpoint taken",
    "failed_start": "it could not start",
    "failed": "its host says that it has failed",
    "killed": "its process was killed from outside",
    "stopped": "stopped by the coordinator",
    "superseded": "a better checkpoint has come into reach",
    "destination_lost": "the host it was going to was lost",
    "checkpoint_lost": "no host can send its checkpoint any more",
}


# what happened, for kinds that are always worded alike; after a colon how a value is written
SENTENCES: dict[type[f.Fact], str] = {
    f.JobQueued: "{job} joins the queue, {ahead} ahead (r = {level:level})",
    f.JobFinished: "{job} finished on {host} at step {step}",
    f.JobFailed: "{job} failed on {host}: {reason}",
    f.CancelOrdered: "{job} is cancelled by its user: {host} is told to end it",
    f.JobCancelled: "{job} is over, cancelled at step {step}",
    f.JobWaits: "{job} goes to the head of the queue: {reason}",
    f.WorkTakenUp: "{job} need not compute {work_s:duration} of work again after all: on from step {to_step}",
    f.CheckpointCompleted: "{job}: checkpoint of step {step} ({payload_bytes:size}) verified and on disk at {holder}",
    f.CheckpointRefused: "what {holder} says it holds of {job} counts for nothing: {reason}",
    f.HostReturned: "{host}: lent again, a spot offer",
    f.OfferLapsed: "{host}: the offer lapsed unused",
    f.MigrationAdmitted: "{job} moves {source} -> {destination}: {payload_bytes:size} admitted at {floor_bytes_per_s:rate} "
    "on average",
    f.MigrationDegraded: "{job} cannot be moved from {source} in time: {reason}",
    f.LevelLearned: "queue level r is now {level:.3f}",
    f.WayTaken: "{source} -> {destination} goes by {nodes}",
    f.NameChanged: "{name}: {change}",
    f.TrunksDraining: "announced to go down: {trunks}",
    f.PeersRefused: "{host} turned away {source}, {times} times: {reason}",
    f.LinkChanged: "the link {source} -> {target} now works at {rate_bytes_per_s:rate}",
}
# the daily business, which only the story of a broken promise has
DETAILS: dict[type[f.Fact], str] = {
    f.CheckpointTaken: "{job}: {final:snapshot} {sequence} of step {step} on its own host",
    f.Granted: "{job} {source} -> {destination} granted {rate_bytes_per_s:rate} ({traffic_class}, binding {bottleneck:or none})",
    f.GrantEnded: "{job} {source} -> {destination} grant ended",
    f.TransferFinished: "{job} {source} -> {destination} checkpoint {sequence} sent: {bytes_sent:size} in "
    "{duration_s:duration}",
    f.CheckpointHeld: "{job}: {holder} holds checkpoint {sequence} too",
    f.ReplicaHeld: "{job}: {host} holds a GPU for its replica",
    f.ReplicaReleased: "{job}: the replica on {host} is given up",
    f.CheckpointPlanned: "{job}: a checkpoint every {interval_s:duration} to {standby}",
}


# of a fact for those who watch: what is lost, what is won, where jobs go
TONES: dict[type[f.Fact], str] = {
    **dict.fromkeys((f.HostLost, f.JobStopped, f.WorkLost, f.JobFailed), "bad"),
    **dict.fromkeys((f.MigrationDegraded, f.CheckpointRefused, f.PeersRefused), "bad"),
    **dict.fromkeys((f.HostReturned, f.JobFinished, f.WorkTakenUp, f.HostJoined), "good"),
    **dict.fromkeys((f.MigrationAdmitted, f.MigrationFinished, f.JobRedirected), "calm"),
}


class _Words(string.Formatter):
    """Formatter that writes a number in its unit, and a flag in words."""

    WRITERS: ClassVar[dict[str, Callable[[Any], str]]] = {
        "duration": format_duration,
        "rate": format_rate,
        "size": format_size,
        "level": format_level,
        "snapshot": lambda is_final: "final snapshot" if is_final else "snapshot",
        "or none": lambda text: text or "none",
    }

    def format_field(self, value: Any, format_spec: str) -> str:
        write = self.WRITERS.get(format_spec)
        return str(super().format_field(value, format_spec)) if write is None else write(value)

    def tell(self, template: str, fact: f.Fact) -> str:
        return self.vformat(template, (), {name: getattr(fact, name) for name in fact.__struct_fields__})


_WORDS = _Words()


def sentence(fact: f.Fact) -> str | None:
    """Describe the fact in a sentence; None for the facts that only matter in numbers (repeated grants, counters, plans)."""
    if template := SENTENCES.get(type(fact)):
        return _WORDS.tell(template, fact)
    match fact:
        case f.JobSubmitted():
            length = format_duration(fact.steps * fact.step_s)
            return f"{fact.job} submitted: {length} of work, {format_size(fact.payload_bytes)} of state"
        case f.JobRedirected():
            if fact.waited_s:
                waited = format_duration(fact.waited_s)
                return f"{fact.job} leaves the queue for on-demand after {waited} of waiting"
            return f"{fact.job} goes to on-demand: {fact.ahead} wait already (r = {fact.level:.2f})"
        case f.JobDispatched():
            if fact.restore_sequence is not None:
                return f"{fact.job} resumes on {fact.host} from step {fact.restore_step} (attempt {fact.attempt})"
            waited = f" after {format_duration(fact.delay_s)} of waiting" if fact.delay_s else ""
            again = f", again from step 0 (attempt {fact.attempt})" if fact.attempt > 1 else ""
            return f"{fact.job} starts on {fact.host}{waited}{again}"
        case f.JobRunning():
            is_restored = fact.restored_sequence is not None
            proved = "its state is proved by hash" if is_restored else "from the beginning"
            down = f", down for {format_duration(fact.downtime_s)}" if fact.downtime_s is not None else ""
            return f"{fact.job} runs on {fact.host} at step {fact.step}: {proved}{down}"
        case f.JobStopped():
            why = CAUSES.get(fact.cause, fact.cause.replace("_", " "))
            return f"{fact.job} stopped on {fact.host} at step {fact.last_step}: {why}"
        case f.WorkLost() if fact.from_step > fact.to_step:
            lost = format_duration(fact.work_lost_s)
            return f"{fact.job} loses {fact.from_step - fact.to_step} steps ({lost} of work)"
        case f.TransferFinished(ok=False):
            return f"{fact.job}: transfer {fact.source} -> {fact.destination} broke off: {fact.reason}"
        case f.HostJoined():
            return f"{fact.host}: agent registered" + ("" if fact.lent else ", the owner keeps the host")
        case f.HostLost():
            jobs = f"; {_several(fact.jobs)} fenced until the lease has lapsed" if fact.jobs else ""
            return f"{fact.host}: agent lost ({fact.reason}){jobs}"
        case f.CoordinatorRestarted():
            silent = format_duration(fact.silent_s)
            waits = f"; it waits for {len(fact.hosts)} agents" if fact.hosts else ""
            return f"the coordinator begins again from its journal, {silent} after its last event{waits}"
        case f.HostReclaimed():
            jobs = f", {_several(fact.jobs)} there" if fact.jobs else ""
            if fact.notice_s > 0.0:
                return f"{fact.host}: owner reclaims in {format_duration(fact.notice_s)}{jobs}"
            return f"{fact.host}: closed by its owner{jobs}"
        case f.MigrationFinished():
            when = "in time" if fact.in_time else "too late"
            took, down = format_duration(fact.took_s), format_duration(fact.downtime_s)
            return f"{fact.job} runs on at {fact.destination} {when}: moved in {took}, down for {down}"
    return None


def describe(fact: f.Fact) -> str:
    """Describe the fact in words where there are any, else in short, else by the record itself."""
    if told := sentence(fact):
        return told
    template = DETAILS.get(type(fact))
    return _WORDS.tell(template, fact) if template else msgspec.json.encode(fact).decode()


def particulars(fact: f.Fact) -> list[tuple[str, str]]:
    """Return (name, value) of all that a fact carries, each in its unit."""
    return [(name.replace("_", " "), _in_unit(name, getattr(fact, name))) for name in fact.__struct_fields__]


def _in_unit(name: str, value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        for ending, write in (
            ("bytes_per_s", format_rate),
            ("bytes", format_size),
            ("_s", format_duration),
            ("level", format_level),
        ):
            if name.endswith(ending):
                return write(value)
        return f"{value:.6g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str("-" if value is None else value)


def concerns(fact: f.Fact, subject: str) -> bool:
    """Return True if the job or host is a part of the fact."""
    named = (getattr(fact, name, None) for name in ("job", "host", "source", "destination", "holder"))
    return subject in named or subject in getattr(fact, "jobs", ())


def _several(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


QUIET = (
    f.JobSubmitted,
    f.JobQueued,
    f.JobDispatched,
    f.JobRunning,
    f.CheckpointPlanned,
    f.CheckpointCompleted,
    f.HostJoined,
    f.OfferLapsed,
    f.LevelLearned,
)


def notable(fact: f.Fact) -> bool:
    """Return True if a watcher wants to read it at once: owners, moves, losses and ends, not the daily business."""
    if isinstance(fact, f.JobRunning):
        return fact.restored_sequence is not None
    if isinstance(fact, f.JobStopped):
        return fact.cause != "final_checkpoint"
    return not isinstance(fact, QUIET)
