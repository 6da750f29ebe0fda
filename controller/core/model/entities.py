"""The state that the coordinator keeps of hosts, jobs, checkpoints and flows, and the table of a job's transitions.

Decisions are elsewhere.

`docs/reference/states.md` is made from the table (`python docs/generate.py`).

A host that falls silent keeps its jobs until its lease has lapsed: until then they may be running, so they are neither
interrupted nor started elsewhere.

`OpenFlows` also keeps what is derived from open flows, `LeaseTimers` the ends of leases and fences.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from heapq import heappop, heappush
from math import inf
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from controller.core.admission.schedule import Reservation
from controller.core.network.links import Network, PathCache, Paths, RouteInstallation
from controller.numerics.arrays import Floats, Mask
from testbed.messages import JobSpec, SnapshotSpeed, StoredCheckpoint
from topologies.spec import Host, Role, TrafficClass
from topologies.units import format_duration


class Phase(StrEnum):
    """State of a job's life."""

    WAITING = "waiting"
    STARTING = "starting"  # a host was ordered to start it
    RUNNING = "running"
    MOVING = "moving"  # a migration is under way; the job may still run at its source
    FETCHING = "fetching"  # its checkpoint is on the way to the host that will resume it
    CANCELLING = "cancelling"  # its user wants it no more, and its host was ordered to end its process
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


OVER = frozenset({Phase.FINISHED, Phase.FAILED, Phase.CANCELLED})
TOLD = (Phase.STARTING, Phase.RUNNING, Phase.MOVING)  # an agent was ordered to run it: it can end
ON_HOST = frozenset({*TOLD, Phase.FETCHING, Phase.CANCELLING})

TRANSITIONS: dict[tuple[Phase, str], Phase] = {
    (Phase.WAITING, "offered"): Phase.STARTING,
    (Phase.WAITING, "fetch"): Phase.FETCHING,
    (Phase.FETCHING, "stored"): Phase.STARTING,
    (Phase.STARTING, "started"): Phase.RUNNING,
    (Phase.RUNNING, "migrate"): Phase.MOVING,
    (Phase.MOVING, "landed"): Phase.STARTING,
    (Phase.MOVING, "abandoned"): Phase.RUNNING,
    (Phase.CANCELLING, "gone"): Phase.CANCELLED,
    **{(phase, "interrupted"): Phase.WAITING for phase in (*TOLD, Phase.FETCHING)},
    **{(phase, "finished"): Phase.FINISHED for phase in TOLD},
    **{(phase, "failed"): Phase.FAILED for phase in TOLD},
    **{(phase, "cancel"): Phase.CANCELLING for phase in TOLD},
    **{(phase, "cancel"): Phase.CANCELLED for phase in (Phase.WAITING, Phase.FETCHING)},
}


# fetches of a job's checkpoint in a row, to whatever hosts, after which the sender or its copy is to blame
MOST_FAILED_FETCHES = 5
LEAST_SENT = 1 / 16  # of a payload: what a checkpoint counts at least, however little changed last time


@dataclass
class Checkpoint:
    """A completed checkpoint and the hosts that hold it."""

    stored: StoredCheckpoint
    holders: set[str] = field(default_factory=set)


@dataclass
class Move:
    """A migration: where to, and by when."""

    destination: str
    deadline_s: float
    began_s: float
    final_at_s: float  # when the job is to stop for its final snapshot, at the latest, unless a reservation has it
    # the state is there when the notice ends; the job runs later, there if a GPU is held
    rescue: bool = False


class JobStop(NamedTuple):
    """A job's stop: it computes no more since then."""

    at_s: float
    cause: str  # as in `JobStopped`


class JobEnd(NamedTuple):
    """The end of a job."""

    at_s: float
    host: str  # its last
    reason: str  # why it failed


@dataclass
class StandbyStream:
    """A job's stream of checkpoints to its present standby, so far."""

    sent_bytes: int | None = None  # by the last transfer
    misses: int = 0  # checkpoints in a row that did not arrive
    endangered: bool = False  # P1 cannot keep the loss budget with this standby


@dataclass
class CheckpointTimer:
    """A timer of an attempt's checkpoints."""

    number: int = 0  # of attempts that were dispatched: spreads timers
    since_s: float = 0.0  # when the attempt began to run: its first checkpoint is timed from here
    last_s: float | None = None  # when it last took one


@dataclass
class Obstacles:
    """Obstacles that a job has met since it last ran."""

    unfit: dict[str, float] = field(default_factory=dict)  # host that would not take it -> when to try it again
    # hosts, where in a row it could not go on from a copy of its checkpoints
    failed_at: list[str] = field(default_factory=list)
    # host -> how often a checkpoint could not be fetched from it
    fetches_failed: dict[str, int] = field(default_factory=dict)


@dataclass
class JobState:
    """A job, as far as the coordinator knows."""

    spec: JobSpec
    phase: Phase = Phase.WAITING
    attempt: int = 0  # 1 from the first dispatch on; a message of an earlier one changes nothing
    host: str | None = None  # where the attempt runs, or will run once its checkpoint is there
    # its attempts that count are above this: others are of another job of its name, whose submission was cut off the journal, or
    # of a time whose checkpoints it could not read
    attempts_above: int = 0
    step: int = 0  # the last that it is known to have done
    speed: float = 1.0  # of the GPU of its latest attempt
    # how long it waited in the spot queue before paper B sent it to on-demand, at cost k; None: it was not
    redirected_after_s: float | None = None
    restore: Checkpoint | None = None  # what the present attempt resumes from
    # completed ones that are held, by sequence
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    completed: set[int] = field(default_factory=set)  # sequences of all that ever were
    traces: set[str] = field(default_factory=set)  # hosts that ran it or kept a checkpoint of it
    # its latest snapshots, as its hosts reported: sequence -> (step, digest)
    taken: dict[int, tuple[int, str]] = field(default_factory=dict)
    killed: int = 0  # times that its process was killed from outside
    failed_on: str = ""  # the host that first reported that it has failed of itself
    obstacles: Obstacles = field(default_factory=Obstacles)
    standby: str | None = None  # the host that its checkpoints go to
    stream: StandbyStream = field(default_factory=StandbyStream)
    vault: str | None = None  # keeps a second copy (`second_copy`)
    # between checkpoints, as sent to its agent; None: nothing was sent yet
    interval_s: float | None = None
    timer: CheckpointTimer = field(default_factory=CheckpointTimer)
    pause_s: float = 0.0  # that its program stood still for its last checkpoint, as measured
    move: Move | None = None  # the migration that is under way
    degraded: bool = False  # its host has a notice running, and no move was possible yet
    final_sequence: int | None = None  # the checkpoint with which its host stopped this attempt
    stop: JobStop | None = None  # None: it runs, or never did
    landing: tuple[str, Move] | None = None  # (source, migration) that the present attempt completes
    end: JobEnd | None = None  # None: it is not over

    @cached_property
    def name(self) -> str:
        """The job's name."""
        return self.spec.name

    @property
    def checkpoint_bytes(self) -> float:
        """C: what its last checkpoint to the same standby really sent, but LEAST_SENT of the payload at least."""
        whole, sent_bytes = float(self.spec.payload_bytes), self.stream.sent_bytes
        return whole if sent_bytes is None else max(float(sent_bytes), whole * LEAST_SENT)

    def fetch_failed(self, sender: str) -> None:
        """Count a failed fetch from this host, and drop its copies after `MOST_FAILED_FETCHES` of them."""
        failed = self.obstacles.fetches_failed
        failed[sender] = failed.get(sender, 0) + 1
        if failed[sender] >= MOST_FAILED_FETCHES:
            self.drop_copies(sender)

    def stopped(self, now_s: float, cause: str) -> None:
        """Note that it computes no more, for this cause; since when it was noted before, if it was."""
        self.stop = JobStop(now_s if self.stop is None else self.stop.at_s, cause)

    def drop_copies(self, holder: str, below: float = inf, beside: Set[int] = frozenset()) -> None:
        """Drop a host's checkpoints of numbers below that, but for those listed, and all that no host holds any more."""
        for number, known in self.checkpoints.items():
            if number < below and number not in beside:
                known.holders.discard(holder)
        self.checkpoints = {number: known for number, known in self.checkpoints.items() if known.holders}

    @property
    def remaining_s(self) -> float:
        """Work that is left, seconds of a reference GPU, from the last step that it is known to have done."""
        return (self.spec.steps - self.step) * self.spec.step_s

    def quicker(self, now_s: float) -> str:
        """Return the step times, declared and measured, of an attempt that is twice as quick as declared; else nothing."""
        steps = self.step - (self.restore.stored.step if self.restore else 0)
        step_s = (now_s - self.timer.since_s) / max(1, steps)
        declared_s = self.spec.step_s / self.speed
        if self.phase is not Phase.RUNNING or not steps or step_s > declared_s / 2.0:
            return ""
        return f"declared {format_duration(declared_s)} a step, measured {format_duration(step_s)}"

    def did(self, step: int) -> None:
        """Note a step that its host reports as done: never less than before, and never more than there are."""
        self.step = max(self.step, min(step, self.spec.steps))


@dataclass
class Timeout:
    """A time by which a job's agent, or its receiver, is to report; how long it was given, how often it was asked before."""

    until_s: float
    within_s: float
    asked: int = 0


@dataclass
class HostState:
    """A host, as far as the coordinator knows."""

    spec: Host
    connected: bool = False  # its agent can be sent something
    incarnation: int = -1  # of the agent that registered last; -1: none ever did
    data_port: int = 0  # where it takes transfers
    lent: bool = False  # its owner has not taken it
    lent_at_s: float = -inf  # since when
    rest_s: float = 0.0  # for how long it gets no job when it is lent again: it was taken in a moment
    reclaim_at_s: float | None = None  # when a notice that runs there ends
    closures: int = 0  # how often its owner has taken it, as last reported: goes with each StartJob
    lease_until_s: float = -inf  # no copy started here runs beyond this, unless it is renewed
    jobs: dict[str, int] = field(default_factory=dict)  # running here, or reserved for -> their GPUs

    drops: int = 0  # packets that its buckets have dropped, as last reported
    speed: SnapshotSpeed | None = None  # of its snapshots, as it measured it; None: it has not reported yet
    fence_at_s: float = inf  # silent: its jobs count as stopped from then on
    name: str = field(init=False)
    address: str = field(init=False)  # as messages have it
    is_volunteer: bool = field(init=False)  # an owner may take it back

    def __post_init__(self) -> None:
        self.name, self.address = self.spec.name, str(self.spec.address)
        self.is_volunteer = self.spec.role is Role.VOLUNTEER

    @property
    def usable(self) -> bool:
        """True if it is connected and lent, with no notice running."""
        return self.connected and self.lent and self.reclaim_at_s is None

    @property
    def taken_gpus(self) -> int:
        """GPUs that are used or reserved."""
        return sum(self.jobs.values()) if self.jobs else 0

    @property
    def free_gpus(self) -> int:
        """GPUs that are neither used nor reserved."""
        return self.spec.gpus - self.taken_gpus

    @property
    def can_send(self) -> bool:
        """True if it can still send what it holds: connected, and not closed by its owner (a notice is no bar)."""
        return self.connected and (self.lent or self.reclaim_at_s is not None)


@dataclass
class CheckpointFlow:
    """A stream of checkpoints of one job between two hosts, for as long as it has a grant.

    The floor is what P3 guarantees now. It stays, or it follows the timetable in which the `reservation` is kept.
    """

    job: str
    source: str
    destination: str
    traffic_class: TrafficClass
    floor_bytes_per_s: float = 0.0
    cap_bytes_per_s: float = inf
    rate_bytes_per_s: float = 0.0
    bottleneck: str = ""
    reservation: Reservation | None = None
    # of the one checkpoint that it carries; None: of whatever its job takes at the source
    sequence: int | None = None
    number: int = 0  # of flows that were opened: `Cluster.ticket` is made of it
    key: str = field(init=False)  # names the flow in demands and answers

    def __post_init__(self) -> None:
        self.key = f"{self.job}:{self.source}>{self.destination}"

    @property
    def is_recovery(self) -> bool:
        """True if it carries a stored checkpoint to a host where its job is to go on.

        False for what a job that moves is still to take, and for a copy.
        """
        return self.traffic_class is TrafficClass.PLANNED and self.sequence is not None


class JobTable(dict[str, JobState]):
    """Jobs by name, in the order of their submission; none is ever removed."""

    def __init__(self) -> None:
        super().__init__()
        # those that are not over, by name: another list with every change, so that a loop over one may end jobs
        self.unfinished: list[JobState] = []

    def add(self, job: JobState) -> None:
        """Add a job that was submitted."""
        self[job.name] = job
        self.unfinished = sorted([*self.unfinished, job], key=attrgetter("name"))

    def over(self, job: JobState) -> None:
        """Record that a job is over."""
        self.unfinished = [other for other in self.unfinished if other is not job]


# ---------------------------------------------------------------- flows that are open


class FlowRows(NamedTuple):
    """Open flows in the order of their keys, and the links that each is shared on; columns that change with the flows alone."""

    flows: list[CheckpointFlow]
    paths: Paths
    is_stream: Mask  # of checkpoints
    weight: Floats  # ones


class OpenFlows(dict[str, CheckpointFlow]):
    """Open flows by key, in the order of their opening. It changes by `put` and `take` alone."""

    def __init__(
        self, jobs: Mapping[str, JobState], network: Network, paths: PathCache, installation: RouteInstallation
    ) -> None:
        super().__init__()
        self._jobs, self._network, self._cache, self._installation = jobs, network, paths, installation
        self._rows: FlowRows | None = None

    def put(self, flow: CheckpointFlow) -> None:
        """Open the flow, in place of one of its key."""
        self[flow.key], self._rows = flow, None

    def take(self, key: str) -> bool:
        """Close the flow; return whether it was open."""
        self._rows = None
        return self.pop(key, None) is not None

    def rerouted(self) -> None:
        """Drop the paths of flows: they are others."""
        self._rows = None

    def rows(self) -> FlowRows:
        """Return the flows and their links, kept until a flow comes or goes.

        A flow is shared on its route, and on the links that it may still take while that is being changed.
        """
        if self._rows is None:
            flows, held = [self[key] for key in sorted(self)], self._installation.held
            links = [self._cache.of(flow.source, flow.destination) for flow in flows]
            for row, flow in enumerate(flows if held else ()):
                if (route := held.get((flow.source, flow.destination))) is not None:
                    links[row] = tuple(dict.fromkeys((*links[row], *self._network.path(route.links))))
            is_stream = np.array([flow.traffic_class is TrafficClass.PRESYNC for flow in flows], dtype=bool)
            self._rows = FlowRows(flows, Paths.of(links), is_stream, np.ones(len(flows)))
        return self._rows

    def from_host(self, source: str) -> list[CheckpointFlow]:
        """Return the flows that a host sends, in the order of their opening."""
        return [flow for flow in self.values() if flow.source == source]

    def to_host(self, destination: str) -> list[CheckpointFlow]:
        """Return the flows that are sent to a host, in the order of their opening."""
        return [flow for flow in self.values() if flow.destination == destination]

    def firm(self) -> list[CheckpointFlow]:
        """Return the flows for which something is reserved, in the order of their opening."""
        flows = self.values()
        return [flow for flow in flows if flow.reservation is not None or flow.floor_bytes_per_s > 0.0]

    def streams(self) -> list[CheckpointFlow]:
        """Return the streams of checkpoints: from where their jobs run, so no copy on its way to a vault."""
        presync, jobs = TrafficClass.PRESYNC, self._jobs
        return [f for f in self.values() if f.traffic_class is presync and jobs[f.job].host == f.source]


class LeaseTimers:
    """The time at which the lease of each connected host, or its fence, ends. A lease counts as over after a margin."""

    def __init__(self, hosts: Mapping[str, HostState], margin_s: float) -> None:
        self._hosts, self._margin_s = list(hosts.values()), margin_s
        self._number = {host.name: number for number, host in enumerate(self._hosts)}
        # time and number of the host: a heap, in which only those entries count that still hold
        self._ends: list[tuple[float, int]] = []

    def watch(self, host: HostState) -> None:
        """Follow a change of the host's lease or fence."""
        at_s = self._ends_s(host)
        if at_s < inf:
            heappush(self._ends, (at_s, self._number[host.name]))

    def next_s(self) -> float:
        """Return the end of the first lease of a connected host, or of the first fence; inf: none ends."""
        ends = self._ends
        while ends and ends[0][0] != self._ends_s(self._hosts[ends[0][1]]):
            heappop(ends)
        return ends[0][0] if ends else inf

    def ended(self, now_s: float) -> list[tuple[HostState, float]]:
        """Return the hosts whose lease or fence has ended by now, in order, and the time of that."""
        found: dict[int, float] = {}
        while (since_s := self.next_s()) <= now_s:
            found[heappop(self._ends)[1]] = since_s
        hosts = [(self._hosts[number], found[number]) for number in sorted(found)]
        for host, _ in hosts:
            self.watch(host)
        return hosts

    def _ends_s(self, host: HostState) -> float:
        """Return the time at which the host's silence has a consequence; inf: it has none."""
        lapses_s = host.lease_until_s + self._margin_s if host.connected else inf
        return min(lapses_s, host.fence_at_s)
