"""Messages across the sockets between coordinator, agents and operators: typed, tagged, bounded.

Durations are relative seconds, because two machines share no clock; rates are payload bytes per second. A host name, a job
name and a (job, attempt) pair identify things; `attempt` grows with each start of a job anywhere, so that a late message of
an earlier attempt is recognised. A checkpoint is named (job, sequence): sequences of one job grow over all attempts. The range of
each number is `testbed.bounds`'.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from testbed.bounds import (
    LARGEST_PAYLOAD_BYTES,
    LARGEST_STEP,
    MAX_ARRAY,
    MAX_CLASSES,
    MAX_SAMPLES,
    SEQUENCES_PER_ATTEMPT,
    SHORTEST_PERIOD_S,
    Address,
    Attempt,
    Count,
    Counted,
    Digest,
    Factor,
    Name,
    PayloadBytes,
    Period,
    Port,
    Rate,
    Ratio,
    Seconds,
    Sequence,
    Speed,
    Step,
    Text,
    Ticket,
)
from testbed.program import WITHIN, Program
from topologies import keys
from topologies.dimension import Dimension
from topologies.spec import MAX_GPUS

__all__ = ["SEQUENCES_PER_ATTEMPT"]

DURATION, NUMBER, SIZE = Dimension.DURATION, Dimension.NUMBER, Dimension.SIZE
_BIGGEST = float(LARGEST_PAYLOAD_BYTES)


Certificates = Annotated[bytes, Meta(max_length=1 << 13)]


class Message(Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Base of all messages: immutable, tagged with its class name, unknown fields refused."""


# ---------------------------------------------------------------- what a job is


class JobSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A job as a user submits it. What has a kind is a key of job files."""

    # of the job; if left out, the file's
    name: Annotated[Name, keys.text("a name", optional=True)]
    # that make the job
    steps: Annotated[int, Meta(ge=1, le=LARGEST_STEP), keys.whole(1, LARGEST_STEP)]
    # GPU time of one step: what a lost step costs; on a reference GPU, where models have a `speed`
    step_s: Annotated[float, Meta(ge=SHORTEST_PERIOD_S, le=1e6), keys.number(DURATION, above=True, high=1e6)]
    # size of a checkpoint; of a live one at most 34 GB
    payload_bytes: Annotated[int, Meta(ge=1, le=LARGEST_PAYLOAD_BYTES), keys.number(SIZE, 1.0, _BIGGEST)]
    # `synthetic`, or `module:Class`, found in the folder in which the campus was started; of a `command` `executable`
    workload: Annotated[Text, keys.text("a built-in workload, or module:Class")] = "synthetic"
    params: dict[str, str | int | float | bool] = {}  # passed on to the workload
    # that its GPU must have
    memory_bytes: Annotated[Ratio, keys.number(SIZE, 0.0, _BIGGEST)] = 0.0
    # CUDA compute capability that its GPU must have
    min_capability: Annotated[Ratio, keys.number(NUMBER, 0.0, 1000.0)] = 0.0
    # L_max: intervals of at most twice as much (eq. 9)
    loss_budget_s: Annotated[Period, keys.number(DURATION, above=True, high=1e9)] = 900.0
    # for its process to end when it is cancelled, and for a program (10 s) to checkpoint; real time
    grace_s: Annotated[Seconds, keys.number(DURATION, 0.0, 1e6)] = 2.0
    program: Program | None = None  # of workload "executable"
    # of one host: it computes on all of them
    gpus: Annotated[int, Meta(ge=1, le=MAX_GPUS), keys.whole(1, MAX_GPUS)] = 1
    # by which a GPU model may have another speed: a name in its `speeds`
    workload_class: Annotated[Text | None, keys.text("a class of work", optional=True)] = None
    # what it writes there, below its new folder (`RECLAIMNET_OUTPUT_DIRECTORY`), comes back as a folder of this name
    output: Annotated[Annotated[str, Meta(max_length=255)] | None, keys.text(WITHIN, optional=True)] = None
    # `auto`: as much of a sandbox as the machine has; `required`: all of it, or the job fails; `none`: it runs as root
    sandbox: Annotated[Literal["auto", "required", "none"], keys.choice(("auto", "required", "none"))] = "auto"
    # its host's, or none at all
    network: Annotated[Literal["none", "host"], keys.choice(("none", "host"))] = "none"
    # files and folders that it may read, beside Python's, the system's and its own
    reads: Annotated[
        list[Annotated[str, Meta(max_length=4096)]], Meta(max_length=64), keys.texts("files and folders")
    ] = []
    returns_to: Text = ""  # the folder of its file, if it has an output
    index: Annotated[int, Meta(ge=0, le=MAX_ARRAY)] = 0  # in its array, from 1; 0: it is of none


# ---------------------------------------------------------------- agent -> coordinator


class StoredCheckpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """A checkpoint that a host holds, verified and fsynced."""

    job: Name
    sequence: Sequence
    step: Step
    payload_bytes: PayloadBytes
    digest: Digest


class JobClaim(Struct, frozen=True, forbid_unknown_fields=True):
    """Claim of a host that it runs a job."""

    job: Name
    attempt: Attempt
    step: Step


class ClassCount(Struct, frozen=True, forbid_unknown_fields=True):
    """Egress counters of one class of service since the programs were loaded (kernel, wire bytes)."""

    bytes: Counted
    packets: Counted
    drops: Counted


class FlowCount(Struct, frozen=True, forbid_unknown_fields=True):
    """Progress of a transfer: payload bytes sent so far, and for how long."""

    transfer: Text
    payload_bytes: PayloadBytes
    age_s: Seconds


class EgressSample(Struct, frozen=True, forbid_unknown_fields=True):
    """Egress wire bytes of one sampling period (100 ms).

    `held_bytes`: of those of migrations and checkpoints, what the host holds to the migration share.
    """

    period_s: Period
    migration_bytes: PayloadBytes
    research_bytes: PayloadBytes
    held_bytes: PayloadBytes


Outcome = Literal["finished", "failed", "stopped", "killed"]


class JobEnded(Message, frozen=True):
    """End of a workload's process.

    Of itself: finished, or failed. At a hand: it can go on from a checkpoint. It was stopped by its agent (an order,
    the owner, the lease). Or it was killed by a signal that its agent did not send (the kernel's OOM killer, another
    user of the host).
    """

    job: Name
    attempt: Attempt
    outcome: Outcome
    step: Step
    digest: Digest = ""
    reason: Text = ""


class Hello(Message, frozen=True):
    """First message of an agent on each connection. By `incarnation` a restarted agent differs from a reconnected one.

    It lists at most MAX_STORED checkpoints and MAX_ENDED ends: those have room in one frame.
    """

    host: Name
    incarnation: Count
    data_port: Port
    jobs: list[JobClaim]
    stored: list[StoredCheckpoint]
    ended: list[JobEnded]  # reported until the coordinator forgets the job
    lent: bool
    reclaim_in_s: Seconds | None = None  # a notice is running
    closures: Count = 0  # see OwnerReclaims
    sending: list[tuple[Name, Name]] = []  # (job, destination) of what it has no order to stop sending


class Heartbeat(Message, frozen=True):
    """Sign of life: once a second, and at once when something changed. The acknowledgement extends the lease."""

    number: Count
    jobs: list[JobClaim]
    classes: Annotated[dict[str, ClassCount], Meta(max_length=MAX_CLASSES)] = {}
    flows: list[FlowCount] = []
    samples: Annotated[list[EgressSample], Meta(max_length=MAX_SAMPLES)] = []
    loop_lag_s: Seconds = 0.0
    answered_s: Seconds = 0.0  # how long after its sending the last acknowledged one was acknowledged


class OwnerReclaims(Message, frozen=True):
    """Reclaim of the host by its owner: in `notice_s` (0: now, the jobs named are dead already).

    `closures` counts how often it was taken so far. A job whose start was ordered before the last of them was known will
    not be started: it counts as dead, whenever its order arrives.
    """

    notice_s: Seconds
    grace: bool
    stopped: list[JobClaim]
    closures: Count = 0


class OwnerReturns(Message, frozen=True):
    """Return of the host by its owner, who lends it (again)."""


class JobStarted(Message, frozen=True):
    """Start of the workload; after a restore it has proved by hash that its state is that of `step`."""

    job: Name
    attempt: Attempt
    step: Step
    digest: Digest
    restored_sequence: Sequence | None = None


class SnapshotCost(Struct, frozen=True, forbid_unknown_fields=True):
    """Duration and size of a snapshot."""

    pause_s: Seconds  # for which the job stood still
    write_s: Seconds  # until its bytes, once they were copied, were in the host's store: written, hashed and synced
    # why the job stood still until they were written, or fetched from a GPU, though it was to go on; empty: as ordered
    stopped: Text = ""


class SnapshotSpeed(Struct, frozen=True, forbid_unknown_fields=True):
    """Average speed of a host's snapshots, in bytes of state a second."""

    pause_bytes_per_s: Speed  # of a job's standing still
    write_bytes_per_s: Speed  # of writing into the host's store: W


class SnapshotTaken(Message, frozen=True):
    """A local snapshot that exists. `final`: the workload was stopped with it, so nothing runs after `step`.

    `cost`: what this one took, if that was measured; `speed`: the host's average, once it has some. `digest`: of its
    bytes, which whatever host holds it must hold; empty: not sent.
    """

    job: Name
    attempt: Attempt
    sequence: Sequence
    step: Step
    payload_bytes: PayloadBytes
    final: bool
    cost: SnapshotCost | None = None
    speed: SnapshotSpeed | None = None
    digest: Digest = ""


class TransferEnded(Message, frozen=True):
    """The sender's account of one transfer. Bytes sent are TCP's payload."""

    transfer: Text
    job: Name
    sequence: Sequence
    destination: Name
    ok: bool
    bytes_sent: PayloadBytes
    bytes_deduplicated: PayloadBytes
    duration_s: Seconds
    goodput_over_grant: Ratio | None = None  # None: too short to measure
    drops: Counted = 0
    reason: Text = ""
    own_fault: bool = False  # the sender's copy is missing or damaged: no destination would have got it


class CheckpointStored(Message, frozen=True):
    """The receiver's confirmation that a checkpoint is verified and fsynced. Only this completes a checkpoint."""

    checkpoint: StoredCheckpoint


class RefusedPeers(Message, frozen=True):
    """Connections and transfers from one source that this host turned away, and the reason of the first."""

    source: Address
    reason: Text
    times: Count


class Renew(Message, frozen=True):
    """Request for a certificate of this public key (DER), for the name under which the conversation runs."""

    public_key: Certificates


FromAgent = (
    Hello
    | Heartbeat
    | OwnerReclaims
    | OwnerReturns
    | JobStarted
    | JobEnded
    | SnapshotTaken
    | TransferEnded
    | CheckpointStored
    | RefusedPeers
)
# on the wire
ToCoordinator = FromAgent | Renew


# ---------------------------------------------------------------- coordinator -> agent


class Welcome(Message, frozen=True):
    """Registration of the agent. Its jobs may run `lease_s` beyond the sending of the last acknowledged heartbeat.

    Each take-over has a higher `epoch`: an agent follows no coordinator of a lower one.
    """

    lease_s: Seconds
    heartbeat_s: Seconds
    epoch: Count = 0


class Leads(Message, frozen=True):
    """Sent by a coordinator on a connection without a Hello, where there are two: it leads, since this epoch.

    The agent answers with a Hello, and ends the other connection.
    """

    epoch: Count


class Refused(Message, frozen=True):
    """Refusal of a connection that is not wanted; it is closed after this."""

    reason: Text


class HeartbeatAck(Message, frozen=True):
    """Acknowledgement that extends the lease to `lease_s` after heartbeat `number` was *sent*."""

    number: Count


class Endpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """Address at which a host receives checkpoints, and the one-time number of the `Expect` for them (0: none)."""

    host: Name
    address: Address
    port: Port
    ticket: Ticket = 0


class StartJob(Message, frozen=True):
    """Order to run the job; `restore` names a checkpoint that the host has stored, None means from step 0.

    `closures` is what the host had reported when this was ordered (`OwnerReclaims`). `speed`: of the host's GPUs for this job.
    """

    job: JobSpec
    attempt: Attempt
    restore: StoredCheckpoint | None
    closures: Count = 0
    speed: Factor = 1.0


class Expect(Message, frozen=True):
    """Announcement of a transfer to its receiver, which takes no other.

    It is of checkpoints of `job` from one host, under one number.

    The sender receives the same number in the `Endpoint` of its order (`Protect`, `Migrate`, `SendStored`). It names it
    in the Hello of each connection. The receiver takes a checkpoint exactly if an announcement of that number is in
    force, the sender proves the name `source`, and the manifest fits. The manifest must name `job`, a sequence from
    `first` to `last` and at most `most_bytes` of payload. The range gives the attempt too: its checkpoints are attempt
    * SEQUENCES_PER_ATTEMPT + 1, + 2, ...; of `SendStored` it is one sequence.

    - The announcement is sent before the order, on another connection: a Hello may overtake it. The receiver lets a
      connection with an unknown number wait for a moment (seconds) before it rejects it, retryable.
    - One number serves any number of connections (a retry, the next checkpoint of the stream); it is never used for another
      announcement. An announcement with a number that is in force replaces that one (its range may have moved).
    - It is in force until `ExpectNoMore` names it, or until the next `Welcome`: behind that, all that still hold are sent again.
      Losing the connection alone ends none; nor does either end a reception that was accepted before.
    """

    ticket: Ticket
    job: Name
    first: Sequence
    last: Sequence
    source: Name
    most_bytes: PayloadBytes


class ExpectNoMore(Message, frozen=True):
    """End of the announcement of this number: what comes under it is not taken. Unknown numbers are ignored."""

    ticket: Ticket


class StopJob(Message, frozen=True):
    """Order to end this attempt, within `grace_s` (0: at once); answered by JobEnded, when its process is gone."""

    job: Name
    attempt: Attempt
    grace_s: Seconds = 0.0


class Protect(Message, frozen=True):
    """P1's plan for a running job: snapshot every `interval_s`, first in `first_s`, sent to `standby` at `rate`.

    Without a standby snapshots stay where they are taken. A job that is protected does not move: a move that its agent knows of
    was called off.
    """

    job: Name
    attempt: Attempt
    standby: Endpoint | None
    rate_bytes_per_s: Rate
    interval_s: Annotated[float, Meta(gt=0.0)]
    first_s: Seconds


class Unprotect(Message, frozen=True):
    """Order to take no checkpoints: there is no standby at present."""

    job: Name
    attempt: Attempt


class Migrate(Message, frozen=True):
    """Order to move the job: copy a running snapshot first, then stop it with a final one, at the latest in `final_within_s`."""

    job: Name
    attempt: Attempt
    destination: Endpoint
    rate_bytes_per_s: Rate
    final_within_s: Seconds


class SendStored(Message, frozen=True):
    """Order to send a stored checkpoint to a host that will resume the job; not urgent: to one that only keeps it."""

    job: Name
    sequence: Sequence
    destination: Endpoint
    rate_bytes_per_s: Rate
    urgent: bool = True


class Grant(Message, frozen=True):
    """A new rate for all transfers of this job that leave this host for `destination`."""

    job: Name
    destination: Name
    rate_bytes_per_s: Rate


class CancelTransfers(Message, frozen=True):
    """Order to stop sending this job's checkpoints to `destination`.

    A move there is called off, if the job still runs.
    """

    job: Name
    destination: Name


class Forget(Message, frozen=True):
    """Order to drop the stored checkpoints of a job older than `before` (all of them: the job is over)."""

    job: Name
    before: Count  # one more than a sequence may be: all


class Issued(Message, frozen=True):
    """The certificate that was asked for, in PEM."""

    certificate: Certificates


class Trust(Message, frozen=True):
    """The authorities to trust, in PEM, and the names that were revoked, each with its time in seconds of the epoch."""

    trusted: Certificates
    denied: dict[Annotated[str, Meta(max_length=256)], float]


ToAgent = (
    Welcome
    | Refused
    | Leads
    | HeartbeatAck
    | StartJob
    | Expect
    | ExpectNoMore
    | StopJob
    | Protect
    | Unprotect
    | Migrate
    | SendStored
    | Grant
    | CancelTransfers
    | Forget
)
FromCoordinator = ToAgent | Issued | Trust

# ---------------------------------------------------------------- operator <-> coordinator


class Submit(Message, frozen=True):
    """A new job; answered by Accepted once it is in the journal, or by Rejected."""

    job: JobSpec


class Cancel(Message, frozen=True):
    """Withdrawal of a job; answered by Cancelled once that is in the journal, or by Rejected."""

    job: Name


class JobRequest(Message, frozen=True):
    """Request for a job as it was submitted; answered by SubmittedJob, or by Rejected."""

    job: Name


class StatusRequest(Message, frozen=True):
    """Request answered by Status."""


class Watch(Message, frozen=True):
    """Request for every fact from now on, as it is recorded."""


class ChangeLinks(Message, frozen=True):
    """Other rates of cables: (source, target, wire bytes/s; 0: down), by direction.

    Answered by Noted, once it is in the journal.
    """

    rates: Annotated[list[tuple[Name, Name, Rate]], Meta(max_length=100_000)]


class MakeToken(Message, frozen=True):
    """A new token with which a host, or an operator, may join once; answered by Token, or by Refused."""

    role: str
    subject: Name
    ttl_s: Seconds


class Revoke(Message, frozen=True):
    """The end of what a name's certificates are good for, and of its conversations; answered as RotateAuthority."""

    role: str
    subject: Name


class RotateAuthority(Message, frozen=True):
    """Another authority from now on, beside the last one; answered by Noted, or by Refused."""


FromOperator = Submit | Cancel | JobRequest | StatusRequest | Watch | ChangeLinks | MakeToken | Revoke | RotateAuthority


class Accepted(Message, frozen=True):
    """Confirmation that the job is in the journal. `before`: it was already, and nothing was changed."""

    job: Name
    before: bool = False


class Rejected(Message, frozen=True):
    """Rejection of a job that cannot be taken, and why."""

    job: Name
    reason: Text


class Cancelled(Message, frozen=True):
    """Confirmation that the job will never compute again; `host` still has to end its process (empty: none has one).

    `before`: it had been cancelled already.
    """

    job: Name
    host: str
    before: bool = False


class SubmittedJob(Message, frozen=True):
    """A job as it was submitted, and its phase."""

    job: JobSpec
    phase: str


class HostStatus(Struct, frozen=True, forbid_unknown_fields=True):
    """State of a host in the coordinator."""

    host: Name
    building: Name
    role: str
    state: str  # idle, busy, noticed, reclaimed, lost, absent
    gpus: int
    jobs: list[str]
    reclaim_in_s: float | None = None


class JobStatus(Struct, frozen=True, forbid_unknown_fields=True):
    """State of a job in the coordinator."""

    job: Name
    phase: str
    host: str
    standby: str
    step: int
    steps: int
    attempt: int
    interval_s: float | None
    grant_bytes_per_s: float | None
    remark: str = ""  # that it has no sandbox; on its steps, where they are quicker than declared


class EndedJob(Struct, frozen=True, forbid_unknown_fields=True):
    """A job that is over."""

    job: Name
    phase: str  # finished, failed, cancelled
    host: str  # its last; empty: it had none
    step: int
    steps: int
    ended_s: float
    reason: str = ""  # why it failed, or how quick its steps were


class Status(Message, frozen=True):
    """The coordinator's view: hosts, unfinished jobs, those that ended last, the queue."""

    now_s: float
    hosts: list[HostStatus]
    jobs: list[JobStatus]
    ended: list[EndedJob]  # the latest LISTED, the last to end last
    waiting: list[str]
    level: float  # r = N + p
    mean_cost: float
    mean_delay_s: float
    counts: dict[str, int]


class Noted(Message, frozen=True):
    """Confirmation that the remark is in the journal."""


class Token(Message, frozen=True):
    """A token, to be given to who is to join."""

    token: str


class Observed(Message, frozen=True):
    """A recorded fact, as JSON (see controller/core/model/facts.py)."""

    at_s: float
    fact: bytes


ToOperator = Accepted | Cancelled | Rejected | SubmittedJob | Status | Noted | Token | Observed | Refused
