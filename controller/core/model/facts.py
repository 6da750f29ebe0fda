"""Facts that the journal keeps: one frozen record for each thing that happened or was decided, in JSON as one line.

`events.jsonl` of a run is these, each with `at_s`, the time since the coordinator started. Rates are payload bytes/s.
"""

from __future__ import annotations

from msgspec import Struct


class Fact(Struct, frozen=True, tag_field="fact", tag=True, gc=False):  # a fact is in no cycle
    """Base of the facts: immutable, tagged with its class name."""


class JobSubmitted(Fact, frozen=True):
    """A job that was accepted into the journal."""

    job: str
    steps: int
    step_s: float  # on a reference GPU
    payload_bytes: int
    gpus: int = 1  # of one host
    sandboxed: bool = True  # unless its file refuses a sandbox


class JobQueued(Fact, frozen=True):
    """A job that joined the queue (paper B), which held `ahead` jobs, at level r = N + p."""

    job: str
    ahead: int
    level: float


class JobRedirected(Fact, frozen=True):
    """A job that went to on-demand, at cost k (paper B): at once, or after it had waited `waited_s` in the queue."""

    job: str
    ahead: int
    level: float
    waited_s: float = 0.0


class JobDispatched(Fact, frozen=True):
    """An attempt given to a host. `cost` and `delay_s` are set for the first dispatch only: paper B counts a job once."""

    job: str
    attempt: int
    host: str
    restore_sequence: int | None = None
    restore_step: int = 0
    cost: float | None = None
    delay_s: float | None = None
    speed: float = 1.0  # of its GPU, in steps over those of the reference


class JobRunning(Fact, frozen=True):
    """An attempt that runs, and whose state was proved to be that of `step`."""

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
    """Failure of the workload itself; it is not tried again."""

    job: str
    attempt: int
    host: str
    reason: str


class CancelOrdered(Fact, frozen=True):
    """A user's order to cancel the job: the host is to end its process, and nothing of it starts any more."""

    job: str
    attempt: int
    host: str


class JobCancelled(Fact, frozen=True):
    """End of a job that its user cancelled: nothing of it runs on `host`, where its latest attempt was (empty: it waited)."""

    job: str
    attempt: int
    host: str
    step: int  # the last that it is known to have done


class JobStopped(Fact, frozen=True):
    """End of an attempt before that of the job, `last_step` being the last known."""

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
    work_lost_s: float  # of a reference GPU: on n GPUs, n times


class WorkTakenUp(Fact, frozen=True):
    """Work of a checkpoint that is in reach again: of what an earlier `WorkLost` records, this is not computed again."""

    job: str
    attempt: int
    from_step: int  # to which the job had come again
    to_step: int
    work_s: float


class JobWaits(Fact, frozen=True):
    """An interrupted job that found no host and is at the head of the queue."""

    job: str
    reason: str


class CheckpointPlanned(Fact, frozen=True):
    """P1's plan for a job: interval, bandwidth, and where its checkpoints go."""

    job: str
    attempt: int
    standby: str
    rate_bytes_per_s: float
    interval_s: float


class ReplicaHeld(Fact, frozen=True):
    """A second GPU for the attempt, on the host of its checkpoints, which computes the same until the attempt ends."""

    job: str
    attempt: int
    host: str


class ReplicaReleased(Fact, frozen=True):
    """A second GPU that is given up before the attempt ends."""

    job: str
    attempt: int
    host: str


class CheckpointTaken(Fact, frozen=True):
    """A local snapshot: not yet a completed checkpoint."""

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
    """A checkpoint that a host has verified and fsynced, for the first time. At most once a (job, sequence).

    The holder is another host than the job's, or the job's own after the job was stopped there: its latest snapshot.
    """

    job: str
    sequence: int
    step: int
    holder: str
    payload_bytes: int


class CheckpointHeld(Fact, frozen=True):
    """Another holder of a completed checkpoint."""

    job: str
    sequence: int
    holder: str


class CheckpointRefused(Fact, frozen=True):
    """A checkpoint that a host reported and that is not used: its attempt, step or content is not the job's."""

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
    """P3's grant to a flow: its rate, the guaranteed part, and the link that binds it (none: its own cap)."""

    job: str
    source: str
    destination: str
    traffic_class: str
    rate_bytes_per_s: float
    floor_bytes_per_s: float
    bottleneck: str


class GrantEnded(Fact, frozen=True):
    """End of a flow."""

    job: str
    source: str
    destination: str


class HostJoined(Fact, frozen=True):
    """An agent that registered, or came back on a new connection."""

    host: str
    incarnation: int
    lent: bool


class HostLost(Fact, frozen=True):
    """Loss of the connection to an agent; its jobs are fenced until their lease has lapsed."""

    host: str
    reason: str
    jobs: list[str]


class CoordinatorRestarted(Fact, frozen=True):
    """A new start of the coordinator from its journal, whose last event is `silent_s` older; it waits for these hosts' agents."""

    silent_s: float
    hosts: list[str]


class HostReclaimed(Fact, frozen=True):
    """The owner's reclaim of a host; notice 0: the host is closed already."""

    host: str
    notice_s: float
    grace: bool
    jobs: list[str]


class HostReturned(Fact, frozen=True):
    """The owner's return of a host: a spot offer."""

    host: str


class OfferLapsed(Fact, frozen=True):
    """A spot offer that was not used within its time."""

    host: str


class MigrationAdmitted(Fact, frozen=True):
    """A migration whose destination P2 chose and whose flow P3 admitted, at a floor or a reservation's mean rate."""

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
    """Lack of a feasible migration: the job will resume from its freshest completed checkpoint, or its last state (`rescued_to`).

    The last state is there where a host takes it before the notice ends.
    """

    job: str
    attempt: int
    source: str
    notice_s: float
    reason: str
    rescued_to: str = ""


class MigrationFinished(Fact, frozen=True):
    """End of a migration: the job runs on at its destination."""

    job: str
    source: str
    destination: str
    in_time: bool
    took_s: float
    downtime_s: float


class LevelLearned(Fact, frozen=True):
    """A new level r of the queue."""

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
    """The trunks, each by its two switches, that are announced to go down, and no others: nothing is planned over them."""

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


class PeersRefused(Fact, frozen=True):
    """Connections and transfers from one source that a host turned away, and the reason of the first."""

    host: str
    source: str
    reason: str
    times: int


class NameChanged(Fact, frozen=True):
    """A change of what a party's name is good for: a token was made, it was used, the name was revoked."""

    name: str
    change: str


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
    | PeersRefused
    | NameChanged
)
