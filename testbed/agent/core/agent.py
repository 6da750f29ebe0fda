"""Decisions of an agent: a function (event, now) -> effects, and the time at which it wants to be woken.

Three rules outrank everything else.

*The owner first.* A closed switch kills the workloads before any message is sent; the coordinator is informed after.

*One copy at most.* A workload may run only while the coordinator is known to believe so: under a lease (`lease`). An
order to start one that comes after the lease has lapsed is refused.

*A final snapshot ends the job here.* Moving a job is: copy a snapshot while the job runs, then stop it with a final
snapshot and send what changed meanwhile. The final one is taken as soon as the copy has arrived. At the latest it is
taken when a full payload would only just make the deadline (tau - T_r - C/b, paper A, Algorithm 1). So a payload that
changed completely is still in time. If the move comes to nothing after that, the final snapshot is a checkpoint that
this host holds and reports: no work is lost by a move.

Messages are lost with their connection. What matters is sent again on the next one: Hello lists what runs, what is
stored and what has ended. Behind it come the start of each job that runs and the final snapshot of each that is moving.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed import messages as m
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.core.lease import Lease
from testbed.agent.core.running import AttemptPhase, Protection, Running
from testbed.agent.core.send_queue import RETRY_S, SendQueue
from testbed.agent.core.speed import SnapshotSpeeds
from testbed.agent.core.stored import StoredCheckpoints
from testbed.bounds import MAX_ENDED, MAX_STORED
from topologies.spec import MAX_GPUS, TrafficClass

ASKED_TO_END = "asked to end"
MAX_CALLED_OFF = 64  # that are remembered: an order is not overtaken by many


@dataclass
class AgentCore:
    """The state of one host's agent. `handle` is the only way to change it."""

    host: str
    incarnation: int
    data_port: int
    stored: StoredCheckpoints = field(default_factory=StoredCheckpoints)
    lent: bool = True
    reclaim_at_s: float | None = None
    closures: int = 0  # how often the owner has taken the host since this agent began
    gpus: int = MAX_GPUS  # of this host
    lease: Lease = field(default_factory=Lease)
    running: dict[str, Running] = field(default_factory=dict)
    sends: SendQueue = field(default_factory=SendQueue)
    announced: dict[int, m.Expect] = field(default_factory=dict)  # transfers in force, by their one-time number
    speeds: SnapshotSpeeds = field(default_factory=SnapshotSpeeds)
    # job -> attempt that was to stop and was not here
    called_off: dict[str, int] = field(default_factory=dict)
    ended: dict[str, m.JobEnded] = field(default_factory=dict)  # sent until the coordinator forgets the job

    @property
    def closed(self) -> bool:
        """True while the owner has the host: not lent, nor under a notice that still runs."""
        return not self.lent and self.reclaim_at_s is None

    # ------------------------------------------------------------ the two calls

    def handle(self, event: ev.Event, now_s: float) -> list[do.Effect]:
        """Return the effects of `event` at `now_s` (seconds, CLOCK_MONOTONIC), in order."""
        effects: list[do.Effect] = []
        if self.running and now_s >= self.lease.lease_until_s:
            lapsed = [(name, job.attempt) for name, job in self.running.items()]
            effects = do.kills_first([e for job in lapsed for e in self._stop(*job, "the lease lapsed")])
        effects += self._react(event, now_s)
        # what is due by now
        if self.reclaim_at_s is not None and now_s >= self.reclaim_at_s:
            effects += self._close(grace=False)
        for name, job in list(self.running.items()):
            if now_s < job.next_snapshot_s():
                continue
            final = job.final_due(now_s)
            if job.protection is not None and job.migration is None:
                job.protection.next_s = now_s + job.protection.interval_s
                if job.standby_host in self.sends.of(name):
                    job.protection.overdue = True
                    continue  # the last one is still on its way: a newer one would only queue behind it
            effects.append(do.TakeSnapshot(name, job.attempt, job.begin_snapshot(), final))
        effects += self.sends.retry(now_s)
        if now_s >= self.lease.heartbeat_at_s:
            effects += self._beat(now_s)
        return effects

    def next_deadline_s(self) -> float:
        """Return the time of the next `handle(Woke(), …)`; inf if only events matter."""
        next_s = self.lease.heartbeat_at_s
        if self.reclaim_at_s is not None:
            next_s = min(next_s, self.reclaim_at_s)
        if self.sends.retries_s:
            next_s = min(next_s, self.sends.next_retry_s())
        if not self.running:
            return next_s
        return min(next_s, self.lease.lease_until_s, *[job.next_snapshot_s() for job in self.running.values()])

    # ------------------------------------------------------------ events and orders

    def _react(self, event: ev.Event, now_s: float) -> list[do.Effect]:
        match event:  # the commonest first
            case ev.Woke():
                return []
            case ev.SendEnded():
                return self._send_ended(event, now_s)
            case ev.SnapshotDone():
                return self._snapshot_done(event, now_s)
            case ev.CheckpointReceived(checkpoint):
                return self._keep(checkpoint)
            case ev.Connected():
                return self._greet(now_s)
            case ev.Disconnected():
                # jobs go on under their lease; recoveries stop: the coordinator has them sent by another host
                self.lease.lost()
                recoveries = {name for name, _ in self.sends.table if name not in self.running}
                return [effect for name in sorted(recoveries) for effect in self.sends.abort_job(name)]
            case ev.Received(message):
                return self._obey(message, now_s)
            case ev.SwitchRead():
                return self._switch(event, now_s)
            case ev.WorkloadStarted(name, attempt, step, digest):
                job = self._of(name, attempt)
                if job is None or job.phase is not AttemptPhase.STARTING:
                    return []
                started = m.JobStarted(name, attempt, step, digest, job.restored_sequence)
                job.start_said(started)
                return [do.Send(started)]
            case ev.WorkloadsProgressed(claims):
                for claim in claims:
                    if job := self._of(claim.job, claim.attempt):
                        job.step = claim.step
                return []
            case ev.WorkloadEnded():
                return self._workload_ended(event)
            case ev.SnapshotFailed(name, attempt, final, reason):
                if (job := self._of(name, attempt)) is None:
                    return []
                if final:
                    return self._stop(name, attempt, f"no final checkpoint: {reason}")
                job.snapshot_failed(now_s + RETRY_S)
                return []
            case ev.Sampled():
                return self._beat(now_s) if self.lease.note(event) else []

    def _obey(self, message: m.ToAgent, now_s: float) -> list[do.Effect]:
        match message:
            case m.Welcome():
                self.announced.clear()
                return self.lease.welcome(message, now_s, idle=not (self.running or self.sends.table))
            case m.HeartbeatAck(number=number):
                return self.lease.acknowledged(number, now_s)
            case m.StartJob():
                return self._start(message, now_s)
            case m.StopJob(job=name, attempt=attempt, grace_s=grace_s):
                job = self._of(name, attempt)
                if job is None:  # its start may come yet, if that was overtaken
                    self.called_off[name] = max(attempt, self.called_off.get(name, 0))
                    if len(self.called_off) > MAX_CALLED_OFF:
                        del self.called_off[next(iter(self.called_off))]
                if grace_s <= 0.0 or job is None or job.phase is AttemptPhase.MOVED:
                    return self._stop(name, attempt, "stopped by the coordinator")
                if job.phase is AttemptPhase.ENDING:
                    return []
                job.to("asked to end")
                return [*self.sends.abort_job(name), do.EndWorkload(name, attempt, grace_s)]
            case m.Protect(name, attempt, standby, rate, interval_s, first_s):
                if (job := self._of(name, attempt)) is None:
                    return []
                aborts: list[do.Effect] = []
                if (move := job.migration) is not None and job.final is None:  # the order to stay was lost
                    job.stay(move.destination.host)
                    aborts = self.sends.abort(name, move.destination.host)
                job.protection = Protection(standby, rate, interval_s, now_s + first_s)
                return [*aborts, *self._regrant(name, job.standby_host, rate)]
            case m.Unprotect(job=name, attempt=attempt):
                if job := self._of(name, attempt):
                    job.protection = None
                return []
            case m.Migrate(name, attempt, to, rate, final_within_s):
                if (job := self._of(name, attempt)) is None:
                    return self._stop(name, attempt, "")
                aborts = self.sends.abort_elsewhere(name, to.host)
                self.sends.readdress(name, to)
                job.move_to(to, rate, now_s + final_within_s)
                if job.final is not None:
                    return [*aborts, *self._send_snapshot(job, job.final.sequence)]
                return [*aborts, *self.sends.regrant(name, to.host, rate)]
            case m.SendStored(job=name, sequence=sequence, destination=to, rate_bytes_per_s=rate):
                if self.closed:
                    return []  # ordered before it was known that the host is closed
                kind = TrafficClass.PLANNED if message.urgent else TrafficClass.PRESYNC
                return self.sends.send(do.StartSending(name, sequence, to, rate, kind))
            case m.Grant(job=name, destination=destination, rate_bytes_per_s=rate):
                return self._regrant(name, destination, rate)
            case m.CancelTransfers(job=name, destination=destination):
                # nothing more goes there, be it a checkpoint or the job itself
                if job := self.running.get(name):
                    job.stay(destination)
                return self.sends.abort(name, destination)
            case m.Forget(job=name, before=before):
                ended = self.ended.pop(name, None)
                self.stored.forget(name, before)
                # the job goes on though its process has ended here: what was kept without a word may be its best
                kept = [] if ended is None else [known for known in self.stored.listed() if known.job == name]
                return [do.DropCheckpoints(name, before), *(do.Send(m.CheckpointStored(known)) for known in kept)]
            case m.Expect(ticket=ticket):
                self.announced[ticket] = message
                return []
            case m.ExpectNoMore(ticket=ticket):
                self.announced.pop(ticket, None)
                return []
            case m.Refused() | m.Leads():
                return []

    # ------------------------------------------------------------ the connection

    def _greet(self, now_s: float) -> list[do.Effect]:
        self.lease.greet(now_s)
        hello = m.Hello(
            self.host,
            self.incarnation,
            self.data_port,
            self._claims(),
            self.stored.listed()[-MAX_STORED:],
            list(self.ended.values())[-MAX_ENDED:],
            self.lent,
            None if self.reclaim_at_s is None else max(0.0, self.reclaim_at_s - now_s),
            self.closures,
            sorted(self.sends.table),
        )
        again = [effect for _, job in sorted(self.running.items()) for effect in self._say_again(job)]
        return [do.Send(hello), *again]

    def _say_again(self, job: Running) -> list[do.Effect]:
        """Send again what may have been lost with the last connection; the coordinator ignores what it knows."""
        said: list[do.Effect] = [] if job.started is None else [do.Send(job.started)]
        if job.final is None:
            return said
        taken = do.Send(job.taken(job.final, final=True))
        return [*said, taken, *self._send_snapshot(job, job.final.sequence)]

    # ------------------------------------------------------------ the owner

    def _switch(self, read: ev.SwitchRead, now_s: float) -> list[do.Effect]:
        if read.lent:
            if self.lent:
                return []
            self.lent, self.reclaim_at_s = True, None
            return [do.Send(m.OwnerReturns())]
        assert read.isolate_in_s is not None
        if read.isolate_in_s <= 0.0:
            return [] if self.closed else self._close(read.grace)
        self.lent, self.reclaim_at_s = False, now_s + read.isolate_in_s
        return [do.Send(m.OwnerReclaims(read.isolate_in_s, read.grace, [], self.closures))]

    def _close(self, grace: bool) -> list[do.Effect]:
        """Close the host for its owner: kill first, report after."""
        self.lent, self.reclaim_at_s, self.closures = False, None, self.closures + 1
        stopped = self._claims()
        left = [e for job in list(self.running.values()) for e in self._end(job)]
        aborts = [e for job, destination in list(self.sends.table) for e in self.sends.abort(job, destination)]
        return do.kills_first([*left, *aborts, do.Send(m.OwnerReclaims(0.0, grace, stopped, self.closures))])

    # ------------------------------------------------------------ jobs

    def _start(self, order: m.StartJob, now_s: float) -> list[do.Effect]:
        name, refusal = order.job.name, ""
        present = self.running.get(name)
        if present is not None and present.attempt == order.attempt:
            # the order came twice: this is no second attempt, nor the end of the first
            return self._say_again(present)
        if not self.lent:
            refusal = "the owner has reclaimed this host"
        elif order.closures < self.closures:
            refusal = "it was ordered before it was known that the owner had reclaimed this host"
        elif now_s >= self.lease.lease_until_s:
            refusal = "the lease had lapsed when the order came"
        elif present is not None and present.attempt > order.attempt:
            refusal = f"attempt {present.attempt} is here"
        elif order.attempt <= self.called_off.get(name, 0):
            refusal = "it was called off before"
        free = self._free_slots(but=name)
        if not refusal and len(free) < order.job.gpus:
            refusal = f"{len(free)} of {self.gpus} GPUs are free, and it needs {order.job.gpus}"
        if refusal:
            return [do.Send(m.JobEnded(name, order.attempt, "stopped", 0, reason=refusal))]
        slots = tuple(free[: order.job.gpus])
        before = [] if present is None else self._end(present)  # an older attempt is simply replaced
        self.ended.pop(name, None)
        self.running[name] = Running.ordered(order, slots)
        self.lease.busy(now_s)
        return [*before, do.StartWorkload(order.job, order.attempt, order.restore, slots, order.speed)]

    def _free_slots(self, but: str) -> list[int]:
        """Return the numbers of GPUs on which no process is, but for that of the job `but`: an older attempt is replaced."""
        taken = {
            slot
            for name, job in self.running.items()
            if name != but and job.phase is not AttemptPhase.MOVED
            for slot in job.slots
        }
        return [slot for slot in range(self.gpus) if slot not in taken]

    def _snapshot_done(self, event: ev.SnapshotDone, now_s: float) -> list[do.Effect]:
        """Report the snapshot, and send it to where it goes."""
        checkpoint = event.checkpoint
        if event.cost is not None:
            self.speeds.observe(checkpoint.payload_bytes, event.cost, final=event.final)
        if (job := self._of(checkpoint.job, event.attempt)) is None:
            return []
        if job.phase is AttemptPhase.ENDING:  # it is not wanted; a final one has ended the process
            return self._stop(checkpoint.job, event.attempt, ASKED_TO_END) if event.final else []
        job.snapshot_taken(checkpoint, final=event.final)
        if job.protection is not None:  # between two there is a step, however often the plan would have them
            job.protection.next_s = max(job.protection.next_s, now_s + job.spec.step_s / job.speed)
        told = do.Send(job.taken(checkpoint, final=event.final, cost=event.cost, speed=self.speeds.told))
        return [told, *self._send_snapshot(job, checkpoint.sequence)]

    def _workload_ended(self, event: ev.WorkloadEnded) -> list[do.Effect]:
        ended = event.ended
        job = self._of(ended.job, ended.attempt)
        if job is None or job.phase is AttemptPhase.MOVED:
            return []
        if job.phase is AttemptPhase.ENDING:
            return self._stop(ended.job, ended.attempt, ASKED_TO_END)
        if event.fenced:  # an extension came too late for it: it was stopped, it did not fail
            return self._stop(ended.job, ended.attempt, "the lease lapsed")
        self.ended[ended.job] = ended
        if ended.outcome != "finished":  # it goes on somewhere, from its latest snapshot perhaps
            return [*self._end(job), do.Send(ended)]
        del self.running[ended.job]
        if job.latest is not None:  # in the next Hello, unless the coordinator forgets the job before
            self.stored.put(job.latest)
        return [*self.sends.abort_job(ended.job), do.Send(ended)]

    def _stop(self, name: str, attempt: int, reason: str) -> list[do.Effect]:
        """End an attempt and report it, also if it is not here, since the coordinator believes that it is."""
        job = self._of(name, attempt)
        if job is None:
            return [do.Send(m.JobEnded(name, attempt, "stopped", 0, reason="it is not here"))]
        return [*self._end(job), do.Send(m.JobEnded(name, attempt, "stopped", job.step, reason=reason))]

    def _end(self, job: Running) -> list[do.Effect]:
        """End a job here that goes on elsewhere: its process dies, its transfers stop, its latest snapshot is kept."""
        name = job.spec.name
        del self.running[name]
        kills = [] if job.final is not None else [do.KillWorkload(name, job.attempt)]
        kept = [] if job.latest is None else self._keep(job.latest)
        return [*kills, *self.sends.abort_job(name), *kept]

    # ------------------------------------------------------------ transfers

    def _send_snapshot(self, job: Running, sequence: int) -> list[do.Effect]:
        to_send = job.to_send(sequence)
        return self.sends.send(to_send) if to_send is not None else []

    def _regrant(self, job: str, destination: str, rate_bytes_per_s: float) -> list[do.Effect]:
        if running := self.running.get(job):
            running.regrant(destination, rate_bytes_per_s)
        return self.sends.regrant(job, destination, rate_bytes_per_s)

    def _send_ended(self, event: ev.SendEnded, now_s: float) -> list[do.Effect]:
        account = event.account
        key = account.job, account.destination
        sending = self.sends.table.get(key)
        if sending is None or sending.sequence != account.sequence:
            return []
        job = self.running.get(account.job)
        if not account.ok and event.retryable and (job is None or job.moves_to(account.destination)):
            self.sends.failed(key, now_s)  # a job waits for this one
            return []
        del self.sends.table[key]
        told: list[do.Effect] = [do.Send(account)]
        if job is not None and job.protection is not None and job.standby_host == account.destination:
            job.protection.sent(now_s)
        if job is not None and job.final is None:
            job.copy_ended(account.destination, now_s, ok=account.ok)
        elif job is not None and job.final is not None and account.ok and job.moves_to(account.destination):
            # the job is the destination's from here on; what is left of it here is a checkpoint, to be forgotten
            del self.running[account.job]
            told += self._keep(job.final)
        return told

    # ------------------------------------------------------------ small things

    def _of(self, job: str, attempt: int) -> Running | None:
        running = self.running.get(job)
        return running if running is not None and running.attempt == attempt else None

    def _beat(self, now_s: float) -> list[do.Effect]:
        idle = not (self.running or self.sends.table)
        return self.lease.beat(self._claims(), now_s, idle=idle)

    def _claims(self) -> list[m.JobClaim]:
        return [job.claim for _, job in sorted(self.running.items())]

    def _keep(self, checkpoint: m.StoredCheckpoint) -> list[do.Effect]:
        self.stored.put(checkpoint)
        return [do.Send(m.CheckpointStored(checkpoint))]
