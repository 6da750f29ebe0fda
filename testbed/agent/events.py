"""What can happen to an agent. Every way in which an action of `effects` can end is an event of its own."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.messages import ClassCount, EgressSample, FlowCount, StoredCheckpoint, ToAgent


@dataclass(frozen=True, slots=True)
class Connected:
    """A connection to the coordinator is open; nothing has been said on it."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is gone."""


@dataclass(frozen=True, slots=True)
class Received:
    """The coordinator said something."""

    message: ToAgent


@dataclass(frozen=True, slots=True)
class SwitchRead:
    """The kill-switch map, as read: lent (off), noticed (drain, for `isolate_in_s`) or closed (isolate)."""

    lent: bool
    isolate_in_s: float | None = None  # None while lent; 0 when closed
    grace: bool = False


@dataclass(frozen=True, slots=True)
class WorkloadStarted:
    """The workload runs, at `step`, and proved the digest of its state."""

    job: str
    attempt: int
    step: int
    digest: str


@dataclass(frozen=True, slots=True)
class WorkloadProgressed:
    """The workload reached a step."""

    job: str
    attempt: int
    step: int


@dataclass(frozen=True, slots=True)
class WorkloadEnded:
    """The workload process is gone, of itself (killed ones are not announced). `fenced`: it saw its lease lapse."""

    job: str
    attempt: int
    finished: bool
    step: int
    digest: str = ""
    reason: str = ""
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotDone:
    """A snapshot is in the local store. If it was the final one, the workload is dead."""

    job: str
    attempt: int
    sequence: int
    step: int
    payload_bytes: int
    final: bool
    digest: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotFailed:
    """No snapshot: the workload died first, or the disk is full."""

    job: str
    attempt: int
    sequence: int
    final: bool
    reason: str


@dataclass(frozen=True, slots=True)
class SendEnded:
    """A transfer that this host sent has ended, well or not."""

    job: str
    destination: str
    sequence: int
    ok: bool
    bytes_sent: int = 0
    bytes_deduplicated: int = 0
    duration_s: float = 0.0
    goodput_over_grant: float | None = None
    drops: int = 0
    reason: str = ""
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointReceived:
    """A checkpoint from another host is verified and fsynced here."""

    checkpoint: StoredCheckpoint


@dataclass(frozen=True, slots=True)
class Sampled:
    """Egress counters, read from the kernel every 100 ms."""

    classes: dict[str, ClassCount]
    flows: list[FlowCount]
    sample: EgressSample | None
    loop_lag_s: float


@dataclass(frozen=True, slots=True)
class Woke:
    """Nothing but time has passed: `next_deadline_s()` is due."""


Event = (
    Connected
    | Disconnected
    | Received
    | SwitchRead
    | WorkloadStarted
    | WorkloadProgressed
    | WorkloadEnded
    | SnapshotDone
    | SnapshotFailed
    | SendEnded
    | CheckpointReceived
    | Sampled
    | Woke
)
