"""Effects of an agent on its world. Performed in the order given."""

from __future__ import annotations

from msgspec import Struct

from testbed.messages import Endpoint, FromAgent, JobSpec, StoredCheckpoint
from topologies.spec import TrafficClass


class Send(Struct, frozen=True):
    """A message to the coordinator; it is lost without a connection (the next Hello reports the whole state)."""

    message: FromAgent


class ExtendLease(Struct, frozen=True):
    """Extension of the lease: workloads may run until then; they stop of themselves after it."""

    until_s: float


class StartWorkload(Struct, frozen=True):
    """Start of the job's process; ends as WorkloadStarted or WorkloadEnded."""

    spec: JobSpec
    attempt: int
    restore: StoredCheckpoint | None
    slots: tuple[int, ...] = (0,)  # the host's GPUs that it has, by number
    speed: float = 1.0  # of these


class KillWorkload(Struct, frozen=True):
    """SIGKILL, at once and for certain; announced by nothing."""

    job: str
    attempt: int


class EndWorkload(Struct, frozen=True):
    """Request to a job's process to end, killed if it has not within `grace_s`; ends as WorkloadEnded."""

    job: str
    attempt: int
    grace_s: float


class TakeSnapshot(Struct, frozen=True):
    """Snapshot into the local store; ends as SnapshotDone or SnapshotFailed. `final` kills the workload with it."""

    job: str
    attempt: int
    sequence: int
    final: bool


class StartSending(Struct, frozen=True):
    """Transfer of a stored checkpoint; ends as SendEnded."""

    job: str
    sequence: int
    destination: Endpoint
    rate_bytes_per_s: float
    traffic_class: TrafficClass

    @property
    def transfer(self) -> str:
        """The transfer's name, the same at both hosts and in the journal."""
        return f"{self.job}:{self.sequence}>{self.destination.host}"


class Regrant(Struct, frozen=True):
    """Another rate for a running transfer."""

    job: str
    destination: str
    rate_bytes_per_s: float


class AbortSending(Struct, frozen=True):
    """End of a running transfer; announced by nothing. What arrived stays with the receiver, for a later resume."""

    job: str
    destination: str


class DropCheckpoints(Struct, frozen=True):
    """Deletion of the job's stored checkpoints with a sequence below `before`."""

    job: str
    before: int


Effect = (
    Send
    | ExtendLease
    | StartWorkload
    | KillWorkload
    | EndWorkload
    | TakeSnapshot
    | StartSending
    | Regrant
    | AbortSending
    | DropCheckpoints
)


def kills_first(effects: list[Effect]) -> list[Effect]:
    """Return the same effects, with the processes killed before anything else is done."""
    return sorted(effects, key=lambda effect: not isinstance(effect, KillWorkload))
