"""One job on a host, from the order to start it until it has left: its snapshots, its standby, its move."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from testbed.messages import Endpoint, JobSpec
from topologies.spec import TrafficClass


class Phase(StrEnum):
    """starting -> running -> moved; a job leaves the table from any of them."""

    STARTING = "starting"  # the process was ordered, its state is not proved yet
    RUNNING = "running"
    MOVED = "moved"  # stopped by its final snapshot, which is on its way


@dataclass
class Protection:
    """P1's plan: a snapshot every `interval_s`, sent to the standby."""

    standby: Endpoint
    rate_bytes_per_s: float
    interval_s: float
    next_s: float


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
    step: int
    last_sequence: int
    restored_sequence: int | None
    phase: Phase = Phase.STARTING
    protection: Protection | None = None
    migration: Migration | None = None
    snapshotting: bool = False
    final_sequence: int | None = None

    def next_snapshot_s(self) -> float:
        """When the next snapshot is due; inf if none is, or one is being taken."""
        if self.snapshotting or self.phase is not Phase.RUNNING:
            return inf
        if self.migration is not None:
            return min(self.migration.final_at_s, self.migration.next_copy_s)
        return self.protection.next_s if self.protection is not None else inf

    def final_due(self, now_s: float) -> bool:
        """Whether the snapshot to take now ends the job here."""
        return self.migration is not None and (self.migration.copied or now_s >= self.migration.final_at_s)

    def move_to(self, destination: Endpoint, rate_bytes_per_s: float, final_at_s: float) -> None:
        """Begin to move, or change the destination of a move."""
        self.migration = Migration(destination, rate_bytes_per_s, final_at_s)

    def begin_snapshot(self, final: bool) -> int:
        """Number it; nothing else is due until it is there."""
        self.snapshotting = True
        self.last_sequence += 1
        if self.migration is not None:
            self.migration.next_copy_s = inf
        if final:
            self.final_sequence = self.last_sequence
        return self.last_sequence

    def snapshot_taken(self, sequence: int, step: int, final: bool) -> None:
        """It is in the local store."""
        self.snapshotting, self.step = False, max(self.step, step)
        if final:
            self.phase = Phase.MOVED

    def snapshot_failed(self, retry_at_s: float) -> None:
        """Try again a little later."""
        self.snapshotting = False
        if self.migration is not None:
            self.migration.next_copy_s = retry_at_s

    def snapshot_target(self) -> tuple[Endpoint, float, TrafficClass] | None:
        """Where a snapshot that is not final goes: the destination of a move, else the standby."""
        if self.migration is not None:
            return self.migration.destination, self.migration.rate_bytes_per_s, TrafficClass.PLANNED
        if self.protection is not None:
            return self.protection.standby, self.protection.rate_bytes_per_s, TrafficClass.PRESYNC
        return None

    def copy_ended(self, destination: str, ok: bool, now_s: float) -> None:
        """A running copy has arrived at (or failed to reach) `destination`: then the final snapshot (or another copy) is due."""
        if self.migration is not None and self.migration.destination.host == destination:
            self.migration.copied = ok
            self.migration.next_copy_s = now_s if ok else now_s + 0.25

    def regrant(self, destination: str, rate_bytes_per_s: float) -> None:
        """A new rate also holds for the transfers still to come."""
        if self.migration is not None and self.migration.destination.host == destination:
            self.migration.rate_bytes_per_s = rate_bytes_per_s
        if self.protection is not None and self.protection.standby.host == destination:
            self.protection.rate_bytes_per_s = rate_bytes_per_s
