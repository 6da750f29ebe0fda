"""A job on a host, from the order to start it until it has left: its snapshots, its standby, its move."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from testbed.agent.core import effects as do
from testbed.agent.core.send_queue import RETRY_S
from testbed.errors import InvariantBroken
from testbed.messages import (
    SEQUENCES_PER_ATTEMPT,
    Endpoint,
    JobClaim,
    JobSpec,
    JobStarted,
    SnapshotCost,
    SnapshotSpeed,
    SnapshotTaken,
    StartJob,
    StoredCheckpoint,
)
from topologies.spec import TrafficClass


class AttemptPhase(StrEnum):
    """Phase of an attempt on this host; an attempt leaves the table of running jobs from any phase."""

    STARTING = "starting"  # the process was ordered, its state is not proved yet
    RUNNING = "running"
    MOVED = "moved"  # stopped by its final snapshot, which is on its way
    ENDING = "ending"  # it is cancelled: its process was asked to end


TRANSITIONS: dict[tuple[AttemptPhase, str], AttemptPhase] = {
    (AttemptPhase.STARTING, "started"): AttemptPhase.RUNNING,
    (AttemptPhase.RUNNING, "final snapshot"): AttemptPhase.MOVED,
    (AttemptPhase.STARTING, "asked to end"): AttemptPhase.ENDING,
    (AttemptPhase.RUNNING, "asked to end"): AttemptPhase.ENDING,
}


@dataclass
class Protection:
    """P1's plan: a snapshot every `interval_s`, sent to the standby; None: kept here."""

    standby: Endpoint | None
    rate_bytes_per_s: float
    interval_s: float
    next_s: float
    overdue: bool = False  # a snapshot was due while the last was on its way

    def sent(self, now_s: float) -> None:
        """Take now what was due while the last one was on its way."""
        if self.overdue:
            self.overdue, self.next_s = False, min(self.next_s, now_s)


@dataclass
class Migration:
    """P2's destination and P3's rate. The final snapshot comes when the copy has arrived, at the latest at `final_at_s`."""

    destination: Endpoint
    rate_bytes_per_s: float
    final_at_s: float
    copied: bool = False
    next_copy_s: float = 0.0  # at once


@dataclass
class Running:
    """A job on this host."""

    spec: JobSpec
    attempt: int
    step: int  # the last that its process proved or reported
    last_sequence: int  # number of its last snapshot
    restored_sequence: int | None  # of the checkpoint that it began from; None: from nothing
    slots: tuple[int, ...]  # the GPUs that it has, by number
    speed: float  # of these
    phase: AttemptPhase = AttemptPhase.STARTING
    protection: Protection | None = None  # P1's plan; None: none was sent
    migration: Migration | None = None  # where it is to go; None: nowhere
    snapshotting: bool = False  # one is being taken
    started: JobStarted | None = None  # what was sent of its start, to be sent again on a new connection
    latest: StoredCheckpoint | None = None  # its last snapshot, in the local store

    @classmethod
    def ordered(cls, order: StartJob, slots: tuple[int, ...]) -> Running:
        """Return the job of an order, yet to be started."""
        restore = order.restore
        step, sequence = (restore.step, restore.sequence) if restore else (0, None)
        return cls(order.job, order.attempt, step, order.attempt * SEQUENCES_PER_ATTEMPT, sequence, slots, order.speed)

    @property
    def claim(self) -> JobClaim:
        """The claim on this job that every heartbeat carries."""
        return JobClaim(self.spec.name, self.attempt, self.step)

    @property
    def final(self) -> StoredCheckpoint | None:
        """The snapshot that stopped it; None while it runs."""
        return self.latest if self.phase is AttemptPhase.MOVED else None

    def to(self, trigger: str) -> None:
        """Take the transition that the table has for `trigger`; anything else is a bug that carries its story."""
        try:
            self.phase = TRANSITIONS[self.phase, trigger]
        except KeyError:
            attempt = f"{self.spec.name}, attempt {self.attempt}"
            raise InvariantBroken(attempt, f"no transition {trigger!r} from {self.phase}") from None

    def next_snapshot_s(self) -> float:
        """Return the time of the next snapshot; inf if none is due, or one is being taken."""
        if self.snapshotting or self.phase is not AttemptPhase.RUNNING:
            return inf
        if self.migration is not None:
            return min(self.migration.final_at_s, self.migration.next_copy_s)
        return self.protection.next_s if self.protection is not None else inf

    def final_due(self, now_s: float) -> bool:
        """Return True if the next snapshot ends the job on this host."""
        return self.migration is not None and (self.migration.copied or now_s >= self.migration.final_at_s)

    def moves_to(self, destination: str) -> bool:
        """Return True if the job moves to that host."""
        return self.migration is not None and self.migration.destination.host == destination

    def move_to(self, destination: Endpoint, rate_bytes_per_s: float, final_at_s: float) -> None:
        """Begin to move, or change the destination, the rate or the time of a move.

        What was granted towards a standby ends: if the move is called off, snapshots stay here until P1 has planned
        again.
        """
        if self.protection is not None:
            self.protection.standby = None
        if self.migration is not None and self.migration.destination.host == destination.host:
            self.migration.destination = destination
            self.migration.rate_bytes_per_s, self.migration.final_at_s = rate_bytes_per_s, final_at_s
        else:
            self.migration = Migration(destination, rate_bytes_per_s, final_at_s)

    def stay(self, destination: str) -> None:
        """Call off a move there. A final snapshot that is being taken is taken: the process is dying already."""
        if self.moves_to(destination):
            self.migration = None

    def start_said(self, started: JobStarted) -> None:
        """Record that the process runs, and proved its state."""
        self.to("started")
        self.step, self.started = started.step, started

    def begin_snapshot(self) -> int:
        """Begin a snapshot and return its number; nothing else is due until it is there."""
        self.snapshotting = True
        self.last_sequence += 1
        return self.last_sequence

    def snapshot_taken(self, snapshot: StoredCheckpoint, *, final: bool) -> None:
        """Note a snapshot that is in the local store."""
        self.snapshotting, self.step = False, max(self.step, snapshot.step)
        self.latest = snapshot
        if final:
            self.to("final snapshot")
        elif self.migration is not None:
            self.migration.next_copy_s = inf  # this is the copy

    def snapshot_failed(self, retry_at_s: float) -> None:
        """Try again a little later."""
        self.snapshotting = False
        if self.migration is not None:
            self.migration.next_copy_s = retry_at_s

    def taken(
        self,
        snapshot: StoredCheckpoint,
        *,
        final: bool,
        cost: SnapshotCost | None = None,
        speed: SnapshotSpeed | None = None,
    ) -> SnapshotTaken:
        """Return the message about a snapshot."""
        return SnapshotTaken(
            self.spec.name,
            self.attempt,
            snapshot.sequence,
            snapshot.step,
            snapshot.payload_bytes,
            final,
            cost,
            speed,
            snapshot.digest,
        )

    def to_send(self, sequence: int) -> do.StartSending | None:
        """Return the receiver of a snapshot: the destination of a move, else the standby, else None."""
        if (move := self.migration) is not None:
            return do.StartSending(
                self.spec.name, sequence, move.destination, move.rate_bytes_per_s, TrafficClass.PLANNED
            )
        if (plan := self.protection) is not None and plan.standby and self.phase is not AttemptPhase.MOVED:
            return do.StartSending(self.spec.name, sequence, plan.standby, plan.rate_bytes_per_s, TrafficClass.PRESYNC)
        return None

    @property
    def standby_host(self) -> str:
        """Host that receives snapshots while the job runs; "" if none."""
        plan = self.protection
        return plan.standby.host if plan is not None and plan.standby is not None else ""

    def copy_ended(self, destination: str, now_s: float, *, ok: bool) -> None:
        """Record that a running copy has arrived (or failed for good): the final snapshot (or another copy) is due."""
        if self.migration is not None and self.moves_to(destination):
            self.migration.copied = ok
            self.migration.next_copy_s = now_s if ok else now_s + RETRY_S

    def regrant(self, destination: str, rate_bytes_per_s: float) -> None:
        """Set a new rate, which also holds for the transfers still to come."""
        if self.migration is not None and self.moves_to(destination):
            self.migration.rate_bytes_per_s = rate_bytes_per_s
        if self.protection is not None and self.standby_host == destination:
            self.protection.rate_bytes_per_s = rate_bytes_per_s
