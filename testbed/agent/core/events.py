"""Events that an agent decides on. Every way in which an action of `effects` can end is an event of its own."""

from __future__ import annotations

from msgspec import Struct

from testbed.messages import (
    ClassCount,
    EgressSample,
    FlowCount,
    JobClaim,
    JobEnded,
    SnapshotCost,
    StoredCheckpoint,
    ToAgent,
    TransferEnded,
)


class Connected(Struct, frozen=True):
    """Open connection to the coordinator; nothing has been sent on it."""


class Disconnected(Struct, frozen=True):
    """Loss of the connection."""


class Received(Struct, frozen=True):
    """A message from the coordinator."""

    message: ToAgent


class SwitchRead(Struct, frozen=True):
    """The kill-switch map, as read: lent (off), noticed (drain, for `isolate_in_s`) or closed (isolate)."""

    lent: bool
    isolate_in_s: float | None = None  # None while lent; 0 when closed
    grace: bool = False


class WorkloadStarted(Struct, frozen=True):
    """Start of the workload, which runs at `step`, and proved the digest of its state."""

    job: str
    attempt: int
    step: int
    digest: str


class WorkloadsProgressed(Struct, frozen=True):
    """Steps that workloads reached. They are reported together, since events due by then may end every job."""

    claims: list[JobClaim]


class WorkloadEnded(Struct, frozen=True):
    """End of the workload process, but not killed by its agent (that is not announced).

    `fenced`: it saw its lease lapse.
    """

    ended: JobEnded
    fenced: bool = False


class SnapshotDone(Struct, frozen=True):
    """A snapshot in the local store. If it was the final one, the workload is dead. `cost`: None where it is not measured."""

    attempt: int
    checkpoint: StoredCheckpoint
    final: bool
    cost: SnapshotCost | None = None


class SnapshotFailed(Struct, frozen=True):
    """A snapshot that was not made: the workload died first, or the disk is full."""

    job: str
    attempt: int
    final: bool
    reason: str


class SendEnded(Struct, frozen=True):
    """End of a transfer from this host; `retryable`: badly, and it may go better with nothing else changed."""

    account: TransferEnded
    retryable: bool = False


class CheckpointReceived(Struct, frozen=True):
    """A checkpoint from another host, verified and fsynced here."""

    checkpoint: StoredCheckpoint


class Sampled(Struct, frozen=True):
    """Egress counters, read from the kernel every 100 ms."""

    classes: dict[str, ClassCount]
    flows: list[FlowCount]
    sample: EgressSample | None
    loop_lag_s: float


class Woke(Struct, frozen=True):
    """A timer event: `next_deadline_s()` is due."""


Event = (
    Connected
    | Disconnected
    | Received
    | SwitchRead
    | WorkloadStarted
    | WorkloadsProgressed
    | WorkloadEnded
    | SnapshotDone
    | SnapshotFailed
    | SendEnded
    | CheckpointReceived
    | Sampled
    | Woke
)
