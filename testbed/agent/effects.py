"""What an agent can do to its world. Performed in the order given."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.messages import Endpoint, FromAgent, JobSpec, StoredCheckpoint
from topologies.spec import TrafficClass


@dataclass(frozen=True, slots=True)
class Send:
    """Say this to the coordinator; lost without a connection (the next Hello tells all that matters)."""

    message: FromAgent


@dataclass(frozen=True, slots=True)
class ExtendLease:
    """Workloads may run until then; they stop of themselves after it."""

    until_s: float


@dataclass(frozen=True, slots=True)
class StartWorkload:
    """Start the job's process; ends as WorkloadStarted or WorkloadEnded."""

    spec: JobSpec
    attempt: int
    restore: StoredCheckpoint | None


@dataclass(frozen=True, slots=True)
class KillWorkload:
    """SIGKILL, at once and for certain; announced by nothing."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Snapshot into the local store; ends as SnapshotDone or SnapshotFailed. `final` kills the workload with it."""

    job: str
    attempt: int
    sequence: int
    final: bool


@dataclass(frozen=True, slots=True)
class StartSending:
    """Send a stored checkpoint; ends as SendEnded."""

    job: str
    sequence: int
    destination: Endpoint
    rate_bytes_per_s: float
    traffic_class: TrafficClass


@dataclass(frozen=True, slots=True)
class Regrant:
    """A running transfer gets another rate."""

    job: str
    destination: str
    rate_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class AbortSending:
    """Cut a running transfer; announced by nothing. What arrived stays with the receiver, for a later resume."""

    job: str
    destination: str


@dataclass(frozen=True, slots=True)
class DropCheckpoints:
    """Delete the job's stored checkpoints with a sequence below `before`."""

    job: str
    before: int


Effect = (
    Send
    | ExtendLease
    | StartWorkload
    | KillWorkload
    | TakeSnapshot
    | StartSending
    | Regrant
    | AbortSending
    | DropCheckpoints
)


def kills_first(effects: list[Effect]) -> list[Effect]:
    """The same, with the processes dead before anything else is done."""
    return sorted(effects, key=lambda effect: not isinstance(effect, KillWorkload))
