"""What an agent decides: a function (event, now) -> effects, and the time at which it wants to be woken.

Three rules outrank everything else.

*The owner first.* A closed switch kills the workloads before anything is said to anybody; the coordinator is told after.

*One copy at most.* A workload may run only while the coordinator is known to believe so: under a lease (`pulse`). An order to
start one that comes after the lease has lapsed is refused.

*A final snapshot ends the job here.* Moving a job is: copy a snapshot while the job runs, then stop it with a final snapshot
and send what changed meanwhile. The final one is taken as soon as the copy has arrived, and at the latest when a full
payload would only just make the deadline (tau - T_r - C/b, paper A, Algorithm 1), so a payload that changed completely is
still in time. If the move comes to nothing after that, the final snapshot is a checkpoint that this host holds, and it says
so: no work is lost by a move.

Messages are lost with their connection. What matters is said again on the next one: Hello tells what runs, what is stored and
what has ended; behind it come the start of each job that runs and the final snapshot of each that is moving.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from testbed import messages as m
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.core.announced import Announced
from testbed.agent.core.lease import Pulse
from testbed.agent.core.outbound import (
    RETRY_S,
    Sending,
    Sendings,
    account,
)
from testbed.agent.core.running import AttemptPhase, Protection, Running
from testbed.agent.core.stored import Shelf
from topologies.spec import TrafficClass

SAME_NOTICE_S = 0.05  # the switch is read ten times a second: closer deadlines are one notice, read again


@dataclass
class AgentCore:
    """The state of one host's agent. `handle` is the only way to change it."""

    host: str
    incarnation: int
    data_port: int
    stored: Shelf = field(default_factory=Shelf)
    lent: bool = True
    reclaim_at_s: float | None = None
    closures: int = 0  # how often the owner has taken the host since this agent began
    pulse: Pulse = field(default_factory=Pulse)
    running: dict[str, Running] = field(default_factory=dict)
    sendings: Sendings = field(default_factory=Sendings)
    announced: Announced = field(default_factory=Announced)
    ended: dict[str, m.JobEnded] = field(default_factory=dict)  # said until the coordinator forgets the job

    @property
    def closed(self) -> bool:
        """Whether the host is the owner's: not lent, nor under a notice that still runs."""
        return not self.lent and self.reclaim_at_s is None

    # ------------------------------------------------------------ the two calls

    def handle(self, event: ev.Event, now_s: float) -> list[do.Effect]:
        """Everything that follows from `event` at `now_s` (seconds, CLOCK_MONOTONIC), in order."""
        return [*self._lapse(now_s), *self._react(event, now_s), *self._due(now_s)]

    def next_deadline_s(self) -> float:
        """When `handle(Woke(), …)` is wanted; inf if only events matter."""
        next_s = self.pulse.heartbeat_at_s
        if self.reclaim_at_s is not None:
            next_s = min(next_s, self.reclaim_at_s)
        if self.sendings.table:
            next_s = min(next_s, self.sendings.next_retry_s())
        if not self.running:
            return next_s
        return min(
            next_s, self.pulse.lease_until_s, *[job.next_snapshot_s() for job in self.running.values()]
        )

    # ------------------------------------------------------------ events

    def _react(self, event: ev.Event, now_s: float) -> list[do.Effect]:
        match event:  # the commonest first
            case ev.Woke():
                return []
            case ev.SendEnded():
                return self._send_ended(event, now_s)
            case ev.SnapshotDone():
                return self._snapshot_done(event)
            case ev.CheckpointReceived(checkpoint):
                return self._keep(checkpoint)
            case ev.Connected():
                return self._greet(now_s)
            case ev.Disconnected():
                return self._disconnected()
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
            case ev.SnapshotFailed():
                return self._snapshot_failed(event, now_s)
            case ev.Sampled():
                return self.pulse.beat(self._claims(), now_s) if self.pulse.note(event) else []

    def _obey(self, message: m.ToAgent, now_s: float) -> list[do.Effect]:
        match message:
            case m.Welcome():
                self.announced.table.clear()
                return self.pulse.welcome(message, now_s)
            case m.HeartbeatAck(number=number):
                return self.pulse.acknowledged(number)
            case m.StartJob():
                return self._start(message, now_s)
            case m.StopJob(job=job, attempt=attempt):
                return self._stop(job, attempt, "stopped by the coordinator")
            case m.Protect():
                return self._protect(message, now_s)
            case m.Unprotect(job=job, attempt=attempt):
                if running := self._of(job, attempt):
                    running.protection = None
                return []
            case m.Migrate():
                return self._migrate(message, now_s)
            case m.SendStored(job=job, sequence=sequence, destination=to, rate_bytes_per_s=rate):
                if self.closed:
                    return []  # ordered before it was known that the host is closed
                kind = TrafficClass.PLANNED if message.urgent else TrafficClass.PRESYNC
                return self.sendings.send(job, Sending(sequence, to, rate, kind))
            case m.Grant(job=job, destination=destination, rate_bytes_per_s=rate):
                return self._regrant(job, destination, rate)
            case m.CancelTransfers(job=job, destination=destination):
                return self._cancel(job, destination)
            case m.Forget(job=job, before=before):
                return self._forget(job, before)
            case m.Expect():
                self.announced.tell(message)
                return []
            case m.ExpectNoMore(ticket=ticket):
                self.announced.table.pop(ticket, None)
                return []
            case m.Refused():
                return []

    def _lapse(self, now_s: float) -> list[do.Effect]:
        if now_s < self.pulse.lease_until_s or not self.running:
            return []
        lapsed = [(name, job.attempt) for name, job in self.running.items()]
        return do.kills_first([e for job in lapsed for e in self._stop(*job, "the lease lapsed")])

    def _due(self, now_s: float) -> list[do.Effect]:
        effects: list[do.Effect] = []
        if self.reclaim_at_s is not None and now_s >= self.reclaim_at_s:
            effects += self._close(grace=False)
        for job in list(self.running.values()):
            if now_s >= job.next_snapshot_s():
                effects += self._snapshot(job, now_s)
        effects += self.sendings.retry(now_s)
        if now_s >= self.pulse.heartbeat_at_s:
            effects += self.pulse.beat(self._claims(), now_s)
        return effects

    # ------------------------------------------------------------ the connection

    def _greet(self, now_s: float) -> list[do.Effect]:
        self.pulse.greet(now_s)
        hello = m.Hello(
            self.host,
            self.incarnation,
            self.data_port,
            self._claims(),
            self.stored.listed(),
            list(self.ended.values()),
            self.lent,
            None if self.reclaim_at_s is None else max(0.0, self.reclaim_at_s - now_s),
            self.closures,
            sorted(self.sendings.table),
        )
        again = [effect for _, job in sorted(self.running.items()) for effect in self._say_again(job)]
        return [do.Send(hello), *again]

    def _say_again(self, job: Running) -> list[do.Effect]:
        """It may have been lost with the last connection; the coordinator ignores what it knows."""
        said: list[do.Effect] = [] if job.started is None else [do.Send(job.started)]
        if job.final is None:
            return said
        taken = do.Send(job.taken(job.final, final=True))
        return [*said, taken, *self._send_snapshot(job, job.final.sequence)]

    def _disconnected(self) -> list[do.Effect]:
        """Jobs go on under their lease. Recoveries stop: the coordinator has them sent by somebody else."""
        self.pulse.lost()
        recoveries = {job for job, _ in self.sendings.table if job not in self.running}
        return [effect for job in sorted(recoveries) for effect in self.sendings.abort_job(job)]

    # ------------------------------------------------------------ the owner

    def _switch(self, read: ev.SwitchRead, now_s: float) -> list[do.Effect]:
        if read.lent:
            return self._lend_again()
        assert read.isolate_in_s is not None
        if read.isolate_in_s <= 0.0:
            return [] if self.closed else self._close(read.grace)
        deadline_s = now_s + read.isolate_in_s
        if self.reclaim_at_s is not None and abs(deadline_s - self.reclaim_at_s) < SAME_NOTICE_S:
            self.reclaim_at_s = min(self.reclaim_at_s, deadline_s)
            return []
        self.lent, self.reclaim_at_s = False, deadline_s
        return [do.Send(m.OwnerReclaims(read.isolate_in_s, read.grace, [], self.closures))]

    def _lend_again(self) -> list[do.Effect]:
        if self.lent:
            return []
        self.lent, self.reclaim_at_s = True, None
        return [do.Send(m.OwnerReturns())]

    def _close(self, grace: bool) -> list[do.Effect]:
        """The host is the owner's from here on: kill first, tell after."""
        self.lent, self.reclaim_at_s, self.closures = False, None, self.closures + 1
        stopped = self._claims()
        left = [e for job in list(self.running.values()) for e in self._end(job)]
        aborts = [
            e for job, destination in list(self.sendings.table) for e in self.sendings.abort(job, destination)
        ]
        return do.kills_first([*left, *aborts, do.Send(m.OwnerReclaims(0.0, grace, stopped, self.closures))])

    # ------------------------------------------------------------ workloads

    def _start(self, order: m.StartJob, now_s: float) -> list[do.Effect]:
        name = order.job.name
        present = self.running.get(name)
        if present is not None and present.attempt == order.attempt:
            return self._say_again(
                present
            )  # the order came twice: this is no second attempt, nor the end of the first
        if refusal := self._refusal(order, present, now_s):
            return [do.Send(m.JobEnded(name, order.attempt, "stopped", 0, reason=refusal))]
        before = [] if present is None else self._end(present)
        self.ended.pop(name, None)
        self.running[name] = Running.ordered(order)
        return [*before, do.StartWorkload(order.job, order.attempt, order.restore)]

    def _refusal(self, order: m.StartJob, present: Running | None, now_s: float) -> str:
        """Why not to start it. An attempt that is older than the order is simply replaced."""
        if not self.lent:
            return "the owner has reclaimed this host"
        if order.closures < self.closures:
            return "it was ordered before it was known that the owner had reclaimed this host"
        if now_s >= self.pulse.lease_until_s:
            return "the lease had lapsed when the order came"
        if present is not None and present.attempt > order.attempt:
            return f"attempt {present.attempt} is here"
        return ""

    def _workload_started(self, event: ev.WorkloadStarted) -> list[do.Effect]:
        job = self._of(event.job, event.attempt)
        if job is None:
            return []
        started = m.JobStarted(event.job, event.attempt, event.step, event.digest, job.restored_sequence)
        job.start_said(started)
        return [do.Send(started)]

    def _workload_ended(self, event: ev.WorkloadEnded) -> list[do.Effect]:
        job = self._of(event.job, event.attempt)
        if job is None or job.phase is AttemptPhase.MOVED:
            return []
        if event.fenced:  # an extension came too late for it: it was stopped, it did not fail
            return self._stop(event.job, event.attempt, "the lease lapsed")
        how: Literal["finished", "failed", "killed"] = "killed" if event.killed else "failed"
        if event.finished:
            how = "finished"
        outcome = m.JobEnded(event.job, event.attempt, how, event.step, event.digest, event.reason)
        self.ended[event.job] = outcome
        if how == "killed":  # it goes on somewhere, from its latest snapshot perhaps
            return [*self._end(job), do.Send(outcome)]
        del self.running[event.job]
        if job.latest is not None:  # said with the next Hello, should nobody have it forgotten until then
            self.stored.put(job.latest)
        return [*self.sendings.abort_job(event.job), do.Send(outcome)]

    def _stop(self, name: str, attempt: int, reason: str) -> list[do.Effect]:
        """End an attempt and say so; it is said of one that is not here, too: somebody believes that it is."""
        job = self._of(name, attempt)
        if job is None:
            return [do.Send(m.JobEnded(name, attempt, "stopped", 0, reason="it is not here"))]
        return [*self._end(job), do.Send(m.JobEnded(name, attempt, "stopped", job.step, reason=reason))]

    def _end(self, job: Running) -> list[do.Effect]:
        """A job that goes on elsewhere leaves this host: its process dies, its transfers stop, its latest snapshot is kept."""
        name = job.spec.name
        del self.running[name]
        kills = [] if job.final is not None else [do.KillWorkload(name, job.attempt)]
        kept = [] if job.latest is None else self._keep(job.latest)
        return [*kills, *self.sendings.abort_job(name), *kept]

    # ------------------------------------------------------------ snapshots

    def _protect(self, order: m.Protect, now_s: float) -> list[do.Effect]:
        job = self._of(order.job, order.attempt)
        if job is None:
            return []
        due_s = now_s + order.first_s
        job.protection = Protection(order.standby, order.rate_bytes_per_s, order.interval_s, due_s)
        if order.standby is not None:
            self.sendings.readdress(order.job, order.standby)
        return self._regrant(order.job, job.standby_host, order.rate_bytes_per_s)

    def _migrate(self, order: m.Migrate, now_s: float) -> list[do.Effect]:
        job = self._of(order.job, order.attempt)
        if job is None:
            return self._stop(order.job, order.attempt, "")
        to = order.destination.host
        aborts = self.sendings.abort_elsewhere(order.job, to)
        self.sendings.readdress(order.job, order.destination)
        job.move_to(order.destination, order.rate_bytes_per_s, now_s + order.final_within_s)
        if job.final is not None:
            return [*aborts, *self._send_snapshot(job, job.final.sequence)]
        return [*aborts, *self.sendings.regrant(order.job, to, order.rate_bytes_per_s)]

    def _cancel(self, job: str, destination: str) -> list[do.Effect]:
        """Nothing more of the job goes there, be it a checkpoint or the job itself."""
        if running := self.running.get(job):
            running.stay(destination)
        return self.sendings.abort(job, destination)

    def _snapshot(self, job: Running, now_s: float) -> list[do.Effect]:
        final = job.final_due(now_s)
        if job.protection is not None and job.migration is None:
            job.protection.next_s = now_s + job.protection.interval_s
            if job.standby_host in self.sendings.of(job.spec.name):
                return []  # the last one is still on its way: a newer one would only queue behind it
        return [do.TakeSnapshot(job.spec.name, job.attempt, job.begin_snapshot(), final)]

    def _snapshot_done(self, event: ev.SnapshotDone) -> list[do.Effect]:
        job = self._of(event.job, event.attempt)
        if job is None:
            return []
        size, digest = event.payload_bytes, event.digest
        snapshot = m.StoredCheckpoint(event.job, event.sequence, event.step, size, digest)
        job.snapshot_taken(snapshot, final=event.final)
        told = do.Send(job.taken(snapshot, final=event.final))
        return [told, *self._send_snapshot(job, event.sequence)]

    def _send_snapshot(self, job: Running, sequence: int) -> list[do.Effect]:
        to_send = job.to_send(sequence)
        return self.sendings.send(job.spec.name, to_send) if to_send is not None else []

    def _snapshot_failed(self, event: ev.SnapshotFailed, now_s: float) -> list[do.Effect]:
        job = self._of(event.job, event.attempt)
        if job is None:
            return []
        if event.final:
            return self._stop(event.job, event.attempt, f"no final checkpoint: {event.reason}")
        job.snapshot_failed(now_s + RETRY_S)
        return []

    # ------------------------------------------------------------ transfers

    def _regrant(self, job: str, destination: str, rate_bytes_per_s: float) -> list[do.Effect]:
        if running := self.running.get(job):
            running.regrant(destination, rate_bytes_per_s)
        return self.sendings.regrant(job, destination, rate_bytes_per_s)

    def _send_ended(self, event: ev.SendEnded, now_s: float) -> list[do.Effect]:
        sending = self.sendings.table.get((event.job, event.destination))
        if sending is None or sending.sequence != event.sequence:
            return []
        job = self.running.get(event.job)
        if not event.ok and event.retryable and (job is None or job.moves_to(event.destination)):
            sending.retry_at_s = now_s + RETRY_S  # somebody waits for this one
            return []
        del self.sendings.table[event.job, event.destination]
        kept = [] if job is None else self._sent(job, event, now_s)
        return [do.Send(account(event)), *kept]

    def _sent(self, job: Running, event: ev.SendEnded, now_s: float) -> list[do.Effect]:
        """A job that has moved is the destination's from here on; what is left of it here is a checkpoint, to be forgotten."""
        if job.final is None:
            job.copy_ended(event.destination, now_s, ok=event.ok)
        elif event.ok and job.moves_to(event.destination):
            del self.running[event.job]
            return self._keep(job.final)
        return []

    # ------------------------------------------------------------ small things

    def _of(self, job: str, attempt: int) -> Running | None:
        running = self.running.get(job)
        return running if running is not None and running.attempt == attempt else None

    def _claims(self) -> list[m.JobClaim]:
        return [job.claim for _, job in sorted(self.running.items())]

    def _keep(self, checkpoint: m.StoredCheckpoint) -> list[do.Effect]:
        self.stored.put(checkpoint)
        return [do.Send(m.CheckpointStored(checkpoint))]

    def _forget(self, job: str, before: int) -> list[do.Effect]:
        self.ended.pop(job, None)
        self.stored.forget(job, before)
        return [do.DropCheckpoints(job, before)]
