"""Facts that the journal keeps: one frozen record for each thing that happened or was decided, in JSON as one line.

`events.jsonl` of a run is these, each with `at_s`, the time since the coordinator started. Rates are payload bytes/s.
"""

from __future__ import annotations

from msgspec import Struct


class Fact(Struct, frozen=True, tag_field="fact", tag=True, gc=False):  # a fact is in no cycle
    """Base: immutable, tagged with its class name."""


class JobSubmitted(Fact, frozen=True):
    """A job was accepted into the journal."""

    job: str
    steps: int
    step_s: float
    payload_bytes: int
    gpus: int = 1  # of one host


class JobQueued(Fact, frozen=True):
    """Paper B: the job joined the queue, which held `ahead` jobs, at level r = N + p."""

    job: str
    ahead: int
    level: float


class JobRedirected(Fact, frozen=True):
    """Paper B: the job went to on-demand, at cost k: at once, or after it had waited `waited_s` in the queue."""

    job: str
    ahead: int
    level: float
    waited_s: float = 0.0


class JobDispatched(Fact, frozen=True):
    """An attempt was given to a host. `cost` and `delay_s` are set for the first dispatch only: paper B counts a job once."""

    job: str
    attempt: int
    host: str
    restore_sequence: int | None = None
    restore_step: int = 0
    cost: float | None = None
    delay_s: float | None = None


class JobRunning(Fact, frozen=True):
    """The attempt runs, and its state was proved to be that of `step`."""

    job: str
    attempt: int
    host: str
    step: int
    digest: str
    restored_sequence: int | None
    downtime_s: float | None  # since the last attempt stopped; None for a first start


class JobFinished(Fact, frozen=True):
    """End of a job of which every step is done."""

    job: str
    attempt: int
    host: str
    step: int
    digest: str


class JobFailed(Fact, frozen=True):
    """The workload itself failed; it is not tried again."""

    job: str
    attempt: int
    host: str
    reason: str


class CancelOrdered(Fact, frozen=True):
    """A user cancels the job: the host is ordered to end its process, and nothing of it starts any more."""

    job: str
    attempt: int
    host: str


class JobCancelled(Fact, frozen=True):
    """A user wanted the job no more, and nothing of it runs: not on `host`, where its latest attempt was (empty: it waited)."""

    job: str
    attempt: int
    host: str
    step: int  # the last that it is known to have done


class JobStopped(Fact, frozen=True):
    """An attempt came to its end before the job did, `last_step` being the last known."""

    job: str
    attempt: int
    host: str
    cause: str
    # emergency, deadline, agent_lost, failed_start, killed, stopped, superseded, checkpoint_lost, destination_lost
    last_step: int


class WorkLost(Fact, frozen=True):
    """Steps that will be computed again: from the last known step back to the one restored."""

    job: str
    attempt: int
    cause: str
    from_step: int
    to_step: int
    work_lost_s: float  # of a GPU: on n GPUs, n times


class WorkTakenUp(Fact, frozen=True):
    """A checkpoint that was out of reach takes the job on: of what an earlier `WorkLost` records, this is not computed again."""

    job: str
    attempt: int
    from_step: int  # to which the job had come again
    to_step: int
    work_s: float


class JobWaits(Fact, frozen=True):
    """An interrupted job found no host and is at the head of the queue."""

    job: str
    reason: str


class CheckpointPlanned(Fact, frozen=True):
    """P1: the interval and the bandwidth of a job, and where its checkpoints go."""

    job: str
    attempt: int
    standby: str
    rate_bytes_per_s: float
    interval_s: float


class ReplicaHeld(Fact, frozen=True):
    """A second GPU is held for the attempt, on the host of its checkpoints, and computes the same until the attempt ends."""

    job: str
    attempt: int
    host: str


class ReplicaReleased(Fact, frozen=True):
    """The second GPU is given up before the attempt ends."""

    job: str
    attempt: int
    host: str


class CheckpointTaken(Fact, frozen=True):
    """A local snapshot exists: not yet a completed checkpoint."""

    job: str
    attempt: int
    sequence: int
    step: int
    payload_bytes: int
    final: bool
    pause_s: float | None = None  # for which the job stood still; None: not measured
    write_s: float | None = None  # until its host's store had it, once its bytes were copied
    stopped: str = ""  # why it stood still until it was written, or fetched from a GPU


class CheckpointCompleted(Fact, frozen=True):
    """A host has verified and fsynced it, for the first time. At most once a (job, sequence).

    The holder is another host than the job's, or the job's own after the job was stopped there: its latest snapshot.
    """

    job: str
    sequence: int
    step: int
    holder: str
    payload_bytes: int


class CheckpointHeld(Fact, frozen=True):
    """A completed checkpoint has one more holder."""

    job: str
    sequence: int
    holder: str


class CheckpointRefused(Fact, frozen=True):
    """A host reported a checkpoint whose attempt, step or content is not the job's: it is not used."""

    job: str
    sequence: int
    holder: str
    reason: str


class TransferFinished(Fact, frozen=True):
    """The sender's account of one transfer."""

    job: str
    sequence: int
    source: str
    destination: str
    ok: bool
    bytes_sent: int
    bytes_deduplicated: int
    duration_s: float
    goodput_over_grant: float | None
    drops: int
    reason: str = ""


class Granted(Fact, frozen=True):
    """P3: what a flow may send, its guaranteed part, and the link that binds it (none: its own cap)."""

    job: str
    source: str
    destination: str
    traffic_class: str
    rate_bytes_per_s: float
    floor_bytes_per_s: float
    bottleneck: str


class GrantEnded(Fact, frozen=True):
    """The flow is over."""

    job: str
    source: str
    destination: str


class HostJoined(Fact, frozen=True):
    """An agent registered, or came back on a new connection."""

    host: str
    incarnation: int
    lent: bool


class HostLost(Fact, frozen=True):
    """The connection to an agent is gone; its jobs are fenced until their lease has lapsed."""

    host: str
    reason: str
    jobs: list[str]


class CoordinatorRestarted(Fact, frozen=True):
    """The coordinator began again from its journal, whose last event is `silent_s` older; it waits for these hosts' agents."""

    silent_s: float
    hosts: list[str]


class HostReclaimed(Fact, frozen=True):
    """The owner reclaims: notice 0 means that the host is closed already."""

    host: str
    notice_s: float
    grace: bool
    jobs: list[str]


class HostReturned(Fact, frozen=True):
    """The owner lends the host again: a spot offer."""

    host: str


class OfferLapsed(Fact, frozen=True):
    """A spot offer was not used within its time."""

    host: str


class MigrationAdmitted(Fact, frozen=True):
    """P2 chose a destination and P3 admitted the flow: at a floor, or with a reservation, whose mean rate that is."""

    job: str
    attempt: int
    source: str
    destination: str
    notice_s: float
    payload_bytes: int
    floor_bytes_per_s: float
    score_s: float | None  # None: infinite, since there is no way on from there
    survival: float


class MigrationDegraded(Fact, frozen=True):
    """No feasible migration: the job will resume from its freshest completed checkpoint, or its last state (`rescued_to`).

    The last state is there where a host takes it before the notice ends.
    """

    job: str
    attempt: int
    source: str
    notice_s: float
    reason: str
    rescued_to: str = ""


class MigrationFinished(Fact, frozen=True):
    """The job runs on at its destination."""

    job: str
    source: str
    destination: str
    in_time: bool
    took_s: float
    downtime_s: float


class LevelLearned(Fact, frozen=True):
    """The controller moved r."""

    level: float


class LinkChanged(Fact, frozen=True):
    """A new rate of a cable in one direction: wire bytes/s, 0 if it is down."""

    source: str
    target: str
    rate_bytes_per_s: float


class WayTaken(Fact, frozen=True):
    """A new route from one host to another for what the testbed sends; no nodes: by the tree of trunks again."""

    source: str
    destination: str
    nodes: list[str]


class TrunksDraining(Fact, frozen=True):
    """Trunks, each by its two switches, are announced to go down, and no others: nothing is planned over them."""

    trunks: list[list[str]]


class EgressMeasured(Fact, frozen=True):
    """Kernel counters of a host's egress over a window, wire bytes; `held_bytes`: those of `migration_bytes` held to the share.

    Checkpoints that may exceed the migration share are not among `held_bytes`.
    """

    host: str
    window_s: float
    migration_bytes: int
    research_bytes: int
    drops: int
    peak_migration_bytes_per_s: float
    held_bytes: int
    peak_held_bytes_per_s: float
    stood_still_s: float = 0.0  # the longest that the agent was late to look at them


AnyFact = (
    JobSubmitted
    | JobQueued
    | JobRedirected
    | JobDispatched
    | JobRunning
    | JobFinished
    | JobFailed
    | CancelOrdered
    | JobCancelled
    | JobStopped
    | WorkLost
    | WorkTakenUp
    | JobWaits
    | CheckpointPlanned
    | ReplicaHeld
    | ReplicaReleased
    | CheckpointTaken
    | CheckpointCompleted
    | CheckpointHeld
    | CheckpointRefused
    | TransferFinished
    | Granted
    | GrantEnded
    | HostJoined
    | HostLost
    | CoordinatorRestarted
    | HostReclaimed
    | HostReturned
    | OfferLapsed
    | MigrationAdmitted
    | MigrationDegraded
    | MigrationFinished
    | LevelLearned
    | LinkChanged
    | WayTaken
    | TrunksDraining
    | EgressMeasured
)
