"""What an agent decides: a function (event, now) -> effects, and the time at which it wants to be woken.

Three rules outrank everything else.

*The owner first.* A closed switch kills the workloads before anything is said to anybody; the coordinator is told after.

*One copy at most.* A workload may run only while the coordinator is known to believe so. Each heartbeat that is acknowledged
extends a lease to a fixed time after that heartbeat was *sent*; the coordinator counts from the acknowledgement, which is
later, so without any common clock the agent's copy is dead before the coordinator dares to start another.

*A final snapshot ends the job here.* Moving a job is: copy a snapshot while the job runs, then stop it with a final snapshot
and send what changed meanwhile. The final one is taken as soon as the copy has arrived, and at the latest when a full
payload would only just make the deadline (tau - T_r - C/b, paper A, Algorithm 1), so a payload that changed completely is
still in time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from testbed.agent import effects as do
from testbed.agent import events as ev
from testbed.agent.running import Phase, Protection, Running
from testbed.messages import (
    SEQUENCES_PER_ATTEMPT,
    CancelTransfers,
    CheckpointStored,
    EgressSample,
    Endpoint,
    Forget,
    Grant,
    Heartbeat,
    HeartbeatAck,
    Hello,
    JobClaim,
    JobEnded,
    JobStarted,
    Migrate,
    OwnerReclaims,
    OwnerReturns,
    Protect,
    Refused,
    SendStored,
    SnapshotTaken,
    StartJob,
    StopJob,
    StoredCheckpoint,
    ToAgent,
    TransferEnded,
    Unprotect,
    Welcome,
)
from topologies.spec import TrafficClass

RETRY_S = 0.25  # pause before a failed transfer of a final checkpoint is tried again: a few round trips of the campus
MAX_UNSENT_SAMPLES = 100  # egress samples kept while nobody listens: ten seconds of 100 ms


@dataclass
class Sending:
    """One transfer that this host is sending, or will send again at `retry_at_s`."""

    sequence: int
    destination: Endpoint
    rate_bytes_per_s: float
    traffic_class: TrafficClass
    retry_at_s: float = inf


@dataclass
class AgentCore:
    """The state of one host's agent. `handle` is the only way to change it."""

    host: str
    incarnation: int
    data_port: int
    stored: dict[tuple[str, int], StoredCheckpoint] = field(default_factory=dict)
    connected: bool = False
    lent: bool = True
    reclaim_at_s: float | None = None
    lease_s: float = 0.0
    lease_until_s: float = inf  # inf: no lease was ever given, so nothing runs
    heartbeat_s: float = 1.0
    heartbeat_at_s: float = inf
    heartbeat_number: int = 0
    unacknowledged: dict[int, float] = field(default_factory=dict)  # heartbeat -> when it was sent
    running: dict[str, Running] = field(default_factory=dict)
    sending: dict[tuple[str, str], Sending] = field(default_factory=dict)
    ended: dict[str, JobEnded] = field(default_factory=dict)  # said until the coordinator forgets the job
    sampled: ev.Sampled | None = None
    samples: list[EgressSample] = field(default_factory=list)
    told_drops: int = 0

    # ------------------------------------------------------------ the two calls

    def handle(self, event: ev.Event, now_s: float) -> list[do.Effect]:
        """Everything that follows from `event` at `now_s` (seconds, CLOCK_MONOTONIC), in order."""
        return [*self._lapse(now_s), *self._react(event, now_s), *self._due(now_s)]

    def next_deadline_s(self) -> float:
        """When `handle(Woke(), …)` is wanted; inf if only events matter."""
        return min(
            self.heartbeat_at_s,
            self.lease_until_s if self.running else inf,
            inf if self.reclaim_at_s is None else self.reclaim_at_s,
            *(job.next_snapshot_s() for job in self.running.values()),
            *(sending.retry_at_s for sending in self.sending.values()),
        )

    # ------------------------------------------------------------ events

    def _react(self, event: ev.Event, now_s: float) -> list[do.Effect]:
        match event:
            case ev.Connected():
                return self._greet(now_s)
            case ev.Disconnected():
                self.connected, self.heartbeat_at_s = False, inf
                return []
            case ev.Received(message):
                return self._obey(message, now_s)
            case ev.SwitchRead():
                return self._switch(event, now_s)
            case ev.WorkloadStarted():
                return self._workload_started(event)
            case ev.WorkloadProgressed(job, attempt, step):
                if running := self._of(job, attempt):
                    running.step = step
                return []
            case ev.WorkloadEnded():
                return self._workload_ended(event)
            case ev.SnapshotDone():
                return self._snapshot_done(event, now_s)
            case ev.SnapshotFailed():
                return self._snapshot_failed(event, now_s)
            case ev.SendEnded():
                return self._send_ended(event, now_s)
            case ev.CheckpointReceived(checkpoint):
                self._remember(checkpoint)
                return [do.Send(CheckpointStored(checkpoint))]
            case ev.Sampled():
                return self._note_sample(event, now_s)
            case ev.Woke():
                return []

    def _greet(self, now_s: float) -> list[do.Effect]:
        self.connected = True
        self.unacknowledged = {0: now_s}
        reclaim_in_s = None if self.reclaim_at_s is None else max(0.0, self.reclaim_at_s - now_s)
        hello = Hello(
            self.host,
            self.incarnation,
            self.data_port,
            self._claims(),
            sorted(self.stored.values(), key=lambda c: (c.job, c.sequence)),
            list(self.ended.values()),
            self.lent,
            reclaim_in_s,
        )
        return [do.Send(hello)]

    def _obey(self, message: ToAgent, now_s: float) -> list[do.Effect]:
        match message:
            case Welcome(lease_s=lease_s, heartbeat_s=heartbeat_s):
                self.lease_s, self.heartbeat_s, self.heartbeat_at_s = lease_s, heartbeat_s, now_s
                return self._extend(0)
            case HeartbeatAck(number=number):
                return self._extend(number)
            case StartJob():
                return self._start(message)
            case StopJob(job=job, attempt=attempt):
                return (
                    self._stop(job, attempt, "stopped by the coordinator") if self._of(job, attempt) else []
                )
            case Protect():
                return self._protect(message, now_s)
            case Unprotect(job=job, attempt=attempt):
                if running := self._of(job, attempt):
                    running.protection = None
                return []
            case Migrate():
                return self._migrate(message, now_s)
            case SendStored(job=job, sequence=sequence, destination=to, rate_bytes_per_s=rate):
                return self._send(job, sequence, to, rate, TrafficClass.PLANNED)
            case Grant(job=job, destination=destination, rate_bytes_per_s=rate):
                return self._regrant(job, destination, rate)
            case CancelTransfers(job=job, destination=destination):
                return self._abort(job, destination)
            case Forget(job=job, before=before):
                return self._forget(job, before)
            case Refused():
                return []

    # ------------------------------------------------------------ lease and heartbeat

    def _extend(self, number: int) -> list[do.Effect]:
        sent_s = self.unacknowledged.pop(number, None)
        if sent_s is None:
            return []
        self.unacknowledged = {n: at_s for n, at_s in self.unacknowledged.items() if n > number}
        self.lease_until_s = sent_s + self.lease_s
        return [do.ExtendLease(self.lease_until_s)]

    def _lapse(self, now_s: float) -> list[do.Effect]:
        if now_s < self.lease_until_s or not self.running:
            return []
        return [
            e
            for job in list(self.running.values())
            for e in self._stop(job.spec.name, job.attempt, "lease lapsed")
        ]

    def _due(self, now_s: float) -> list[do.Effect]:
        effects: list[do.Effect] = []
        if self.reclaim_at_s is not None and now_s >= self.reclaim_at_s:
            effects += self._close(grace=False)
        for job in list(self.running.values()):
            if now_s >= job.next_snapshot_s():
                effects += self._snapshot(job, now_s)
        for (job_name, _), sending in self.sending.items():
            if now_s >= sending.retry_at_s:
                effects.append(self._start_sending(job_name, sending))
        if now_s >= self.heartbeat_at_s:
            effects += self._heartbeat(now_s)
        return effects

    def _heartbeat(self, now_s: float) -> list[do.Effect]:
        self.heartbeat_number += 1
        self.heartbeat_at_s = now_s + self.heartbeat_s
        self.unacknowledged[self.heartbeat_number] = now_s
        sampled = self.sampled or ev.Sampled({}, [], None, 0.0)
        samples, self.samples = self.samples, []
        self.told_drops = _drops(sampled)
        beat = Heartbeat(
            self.heartbeat_number, self._claims(), sampled.classes, sampled.flows, samples, sampled.loop_lag_s
        )
        return [do.Send(beat)]

    def _note_sample(self, sampled: ev.Sampled, now_s: float) -> list[do.Effect]:
        known = {flow.transfer for flow in self.sampled.flows} if self.sampled else set()
        self.sampled = sampled
        if sampled.sample is not None:
            self.samples = [*self.samples, sampled.sample][-MAX_UNSENT_SAMPLES:]
        changed = known != {flow.transfer for flow in sampled.flows} or _drops(sampled) != self.told_drops
        return self._heartbeat(now_s) if changed and self.connected and self.heartbeat_at_s < inf else []

    # ------------------------------------------------------------ the owner

    def _switch(self, read: ev.SwitchRead, now_s: float) -> list[do.Effect]:
        if read.lent:
            return self._lend_again()
        assert read.isolate_in_s is not None
        if read.isolate_in_s <= 0.0:
            return self._close(read.grace) if self.lent or self.reclaim_at_s is not None else []
        deadline_s = now_s + read.isolate_in_s
        if self.reclaim_at_s is not None and abs(deadline_s - self.reclaim_at_s) < 0.05:
            return []  # the same notice, read again
        self.lent, self.reclaim_at_s = False, deadline_s
        return [do.Send(OwnerReclaims(read.isolate_in_s, read.grace, []))]

    def _lend_again(self) -> list[do.Effect]:
        if self.lent:
            return []
        self.lent, self.reclaim_at_s = True, None
        return [do.Send(OwnerReturns())]

    def _close(self, grace: bool) -> list[do.Effect]:
        """The host is the owner's from here on: kill first, tell after."""
        self.lent, self.reclaim_at_s = False, None
        stopped = self._claims()
        kills = [e for job in list(self.running.values()) for e in self._end(job)]
        aborts = [e for job, destination in list(self.sending) for e in self._abort(job, destination)]
        return [*kills, *aborts, do.Send(OwnerReclaims(0.0, grace, stopped))]

    # ------------------------------------------------------------ workloads

    def _start(self, order: StartJob) -> list[do.Effect]:
        name = order.job.name
        if not self.lent or name in self.running:
            why = "the owner has reclaimed this host" if not self.lent else "another attempt runs here"
            return [do.Send(JobEnded(name, order.attempt, "stopped", 0, reason=why))]
        self.ended.pop(name, None)
        step = order.restore.step if order.restore else 0
        restored = order.restore.sequence if order.restore else None
        self.running[name] = Running(
            order.job, order.attempt, step, order.attempt * SEQUENCES_PER_ATTEMPT, restored
        )
        return [do.StartWorkload(order.job, order.attempt, order.restore)]

    def _workload_started(self, event: ev.WorkloadStarted) -> list[do.Effect]:
        job = self._of(event.job, event.attempt)
        if job is None:
            return []
        job.phase, job.step = Phase.RUNNING, event.step
        return [
            do.Send(JobStarted(event.job, event.attempt, event.step, event.digest, job.restored_sequence))
        ]

    def _workload_ended(self, event: ev.WorkloadEnded) -> list[do.Effect]:
        job = self._of(event.job, event.attempt)
        if job is None or job.phase is Phase.MOVED:
            return []
        outcome = JobEnded(
            event.job,
            event.attempt,
            "finished" if event.finished else "failed",
            event.step,
            event.digest,
            event.reason,
        )
        self.ended[event.job] = outcome
        return [*self._end(job, kill=False), do.Send(outcome)]

    def _stop(self, name: str, attempt: int, reason: str) -> list[do.Effect]:
        job = self.running[name]
        step = job.step
        return [*self._end(job), do.Send(JobEnded(name, attempt, "stopped", step, reason=reason))]

    def _end(self, job: Running, *, kill: bool = True) -> list[do.Effect]:
        """The job leaves this host: its process dies, its transfers stop."""
        name = job.spec.name
        del self.running[name]
        killing = [do.KillWorkload(name, job.attempt)] if kill and job.phase is not Phase.MOVED else []
        return [*killing, *(e for n, to in list(self.sending) if n == name for e in self._abort(n, to))]

    # ------------------------------------------------------------ snapshots

    def _protect(self, order: Protect, now_s: float) -> list[do.Effect]:
        job = self._of(order.job, order.attempt)
        if job is None:
            return []
        job.protection = Protection(
            order.standby, order.rate_bytes_per_s, order.interval_s, now_s + order.first_s
        )
        return self._regrant(order.job, order.standby.host, order.rate_bytes_per_s)

    def _migrate(self, order: Migrate, now_s: float) -> list[do.Effect]:
        job = self._of(order.job, order.attempt)
        if job is None:
            return []
        elsewhere = [to for n, to in self.sending if n == order.job and to != order.destination.host]
        aborts = [e for to in elsewhere for e in self._abort(order.job, to)]
        job.move_to(order.destination, order.rate_bytes_per_s, now_s + order.final_within_s)
        if job.phase is Phase.MOVED:
            return [*aborts, *self._send_final(job)]
        return [*aborts, *self._regrant(order.job, order.destination.host, order.rate_bytes_per_s)]

    def _snapshot(self, job: Running, now_s: float) -> list[do.Effect]:
        final = job.final_due(now_s)
        if job.protection and not job.migration:
            job.protection.next_s = now_s + job.protection.interval_s
            if (job.spec.name, job.protection.standby.host) in self.sending:
                return []  # the last one is still on its way: a newer one would only queue behind it
        sequence = job.begin_snapshot(final)
        return [do.TakeSnapshot(job.spec.name, job.attempt, sequence, final)]

    def _snapshot_done(self, event: ev.SnapshotDone, now_s: float) -> list[do.Effect]:
        job = self._of(event.job, event.attempt)
        if job is None:
            return []
        job.snapshot_taken(event.sequence, event.step, event.final)
        told = do.Send(
            SnapshotTaken(
                event.job, event.attempt, event.sequence, event.step, event.payload_bytes, event.final
            )
        )
        if event.final:
            return [told, *self._send_final(job)]
        target = job.snapshot_target()
        if target is None:
            return [told]
        endpoint, rate, traffic_class = target
        return [told, *self._send(event.job, event.sequence, endpoint, rate, traffic_class)]

    def _snapshot_failed(self, event: ev.SnapshotFailed, now_s: float) -> list[do.Effect]:
        job = self._of(event.job, event.attempt)
        if job is None:
            return []
        if event.final:
            return self._stop(event.job, event.attempt, f"no final checkpoint: {event.reason}")
        job.snapshot_failed(now_s + RETRY_S)
        return []

    # ------------------------------------------------------------ transfers

    def _send_final(self, job: Running) -> list[do.Effect]:
        assert job.migration is not None
        assert job.final_sequence is not None
        name, move = job.spec.name, job.migration
        superseded = self._abort(name, move.destination.host)
        return [
            *superseded,
            *self._send(
                name, job.final_sequence, move.destination, move.rate_bytes_per_s, TrafficClass.PLANNED
            ),
        ]

    def _send(
        self, job: str, sequence: int, to: Endpoint, rate_bytes_per_s: float, traffic_class: TrafficClass
    ) -> list[do.Effect]:
        if (job, to.host) in self.sending:
            return self._regrant(job, to.host, rate_bytes_per_s)
        self.sending[job, to.host] = sending = Sending(sequence, to, rate_bytes_per_s, traffic_class)
        return [self._start_sending(job, sending)]

    def _start_sending(self, job: str, sending: Sending) -> do.StartSending:
        sending.retry_at_s = inf
        return do.StartSending(
            job, sending.sequence, sending.destination, sending.rate_bytes_per_s, sending.traffic_class
        )

    def _regrant(self, job: str, destination: str, rate_bytes_per_s: float) -> list[do.Effect]:
        running = self.running.get(job)
        if running is not None:
            running.regrant(destination, rate_bytes_per_s)
        sending = self.sending.get((job, destination))
        if sending is None or sending.rate_bytes_per_s == rate_bytes_per_s:
            return []
        sending.rate_bytes_per_s = rate_bytes_per_s
        return [do.Regrant(job, destination, rate_bytes_per_s)] if sending.retry_at_s == inf else []

    def _abort(self, job: str, destination: str) -> list[do.Effect]:
        sending = self.sending.pop((job, destination), None)
        return [do.AbortSending(job, destination)] if sending and sending.retry_at_s == inf else []

    def _send_ended(self, event: ev.SendEnded, now_s: float) -> list[do.Effect]:
        sending = self.sending.get((event.job, event.destination))
        if sending is None or sending.sequence != event.sequence:
            return []
        job = self.running.get(event.job)
        final = job is not None and job.final_sequence == event.sequence
        if not event.ok and event.retryable and (final or job is None):
            sending.retry_at_s = now_s + RETRY_S  # somebody waits for this one
            return []
        del self.sending[event.job, event.destination]
        told = do.Send(_transfer_ended(event))
        if job is None:
            return [told]
        if final and event.ok:
            del self.running[event.job]
        elif not final:
            job.copy_ended(event.destination, event.ok, now_s)
        return [told]

    # ------------------------------------------------------------ small things

    def _of(self, job: str, attempt: int) -> Running | None:
        running = self.running.get(job)
        return running if running is not None and running.attempt == attempt else None

    def _claims(self) -> list[JobClaim]:
        return [JobClaim(name, job.attempt, job.step) for name, job in sorted(self.running.items())]

    def _remember(self, checkpoint: StoredCheckpoint) -> None:
        older = [key for key in self.stored if key[0] == checkpoint.job and key[1] < checkpoint.sequence]
        for key in older:
            del self.stored[key]
        self.stored[checkpoint.job, checkpoint.sequence] = checkpoint

    def _forget(self, job: str, before: int) -> list[do.Effect]:
        self.ended.pop(job, None)
        for key in [key for key in self.stored if key[0] == job and key[1] < before]:
            del self.stored[key]
        return [do.DropCheckpoints(job, before)]


def _drops(sampled: ev.Sampled) -> int:
    return sum(count.drops for count in sampled.classes.values())


def _transfer_ended(event: ev.SendEnded) -> TransferEnded:
    return TransferEnded(
        f"{event.job}:{event.sequence}>{event.destination}",
        event.job,
        event.sequence,
        event.destination,
        event.ok,
        event.bytes_sent,
        event.bytes_deduplicated,
        event.duration_s,
        event.goodput_over_grant,
        event.drops,
        event.reason,
    )
