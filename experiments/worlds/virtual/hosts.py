"""Ground truth of hosts, whatever their agents assume: disk, processes, switch, connection. Data without decisions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from math import inf

from testbed.agent.core.agent import AgentCore
from testbed.agent.core.effects import StartSending
from testbed.agent.core.stored import StoredCheckpoints
from testbed.messages import JobSpec, StoredCheckpoint

# share of its state that a step of the synthetic workload rewrites, if the job has no value
DEFAULT_DIRTY = 0.1


@dataclass(slots=True, eq=False)
class Connection:
    """Connection of an agent and the coordinator.

    Bytes in flight are lost once it is cut; each end learns of that in its own time.
    """

    host: str
    number: int  # in order of opening
    agent_open: bool = True
    coordinator_open: bool = False  # until Hello is there
    cut: bool = False
    down_s: float = 0.0  # when the last message to the agent arrives: none overtakes another
    up_s: float = 0.0
    # a fault had some message overtaken all the same: either side may go by an older word
    overtaken: bool = False


@dataclass(slots=True, eq=False)
class Process:
    """A workload. It computes from `running_from_s` until it is dead, one step every `step_s`."""

    spec: JobSpec
    attempt: int
    base_step: int
    running_from_s: float = inf
    alive: bool = True
    paused_until_s: float = -inf
    told_step: int = -1
    pace: float = 1.0  # how many times as long as its `step_s` a step takes here

    @property
    def step_s(self) -> float:
        """Seconds that a step takes."""
        return self.spec.step_s * self.pace

    def step(self, now_s: float) -> int:
        """Return the last step that is complete."""
        if now_s < self.running_from_s:
            return self.base_step
        done = int((now_s - self.running_from_s) / self.step_s + 1e-9)
        return min(self.spec.steps, self.base_step + done)

    def pause(self, from_s: float, for_s: float) -> None:
        """Stand still for a snapshot; one that is begun during another lasts as long as the longer one."""
        longer_s = max(0.0, from_s + for_s - max(from_s, self.paused_until_s))
        self.running_from_s += longer_s
        self.paused_until_s = max(self.paused_until_s, from_s + for_s)

    def end_s(self) -> float:
        """Return the moment at which its last step is done."""
        return self.running_from_s + (self.spec.steps - self.base_step) * self.step_s


@dataclass(slots=True)
class Disk:
    """Checkpoints of a host, and bytes of those that never arrived whole."""

    stored: StoredCheckpoints = field(default_factory=StoredCheckpoints)
    partial: dict[str, tuple[int, float]] = field(default_factory=dict)  # job -> (step, bytes)
    full: bool = False
    slow_s: float = 0.0  # what each write takes longer than usual
    rotten: set[tuple[str, int]] = field(default_factory=set)  # of those stored, whose bytes are wrong

    def drop(self, job: str, before: int) -> None:
        """Drop those with a sequence below `before`."""
        self.stored.forget(job, before)
        if job in self.partial and not self.stored.of(job):
            del self.partial[job]

    def keep_latest(self, job: str, count: int) -> None:
        """Drop all but the last `count` checkpoints of a job."""
        for sequence in sorted(self.stored.of(job))[:-count]:
            del self.stored[job, sequence]

    def lacks_bytes(self, checkpoint: StoredCheckpoint, dirty_fraction: float) -> float:
        """Return the bytes of a checkpoint that are not here yet.

        States of the synthetic workload that are m steps apart differ in a share min(1, m f) of their chunks.
        """
        size = float(checkpoint.payload_bytes)
        apart = [
            abs(checkpoint.step - other.step)
            for sequence, other in self.stored.of(checkpoint.job).items()
            if (checkpoint.job, sequence) not in self.rotten
        ]
        lacking = size * min([1.0, *(steps * dirty_fraction for steps in apart)])
        return max(0.0, lacking - self._begun(checkpoint, dirty_fraction))

    def _begun(self, checkpoint: StoredCheckpoint, dirty_fraction: float) -> float:
        """Return bytes of it that came with transfers which broke off, of this state or of one near it."""
        step, arrived = self.partial.get(checkpoint.job, (0, 0.0))
        return arrived * (1.0 - min(1.0, abs(checkpoint.step - step) * dirty_fraction))

    def keep_part(self, checkpoint: StoredCheckpoint, moved_bytes: float, dirty_fraction: float) -> None:
        """Keep the part that arrived before a transfer broke off: the next transfer goes on from there."""
        begun = self._begun(checkpoint, dirty_fraction)
        self.partial[checkpoint.job] = (checkpoint.step, begun + moved_bytes)


@dataclass(slots=True, eq=False)
class Transfer:
    """A checkpoint on its way; `key` names its flow in the network, from the handshake's end on."""

    order: StartSending
    key: str
    began_s: float
    rate_bytes_per_s: float
    stored: StoredCheckpoint | None = None  # what is sent, once it is known to be there
    lacking_bytes: float = 0.0
    granted_bytes: float = 0.0
    flowing_from_s: float = inf
    regranted_s: float = 0.0

    def grant(self, rate_bytes_per_s: float, now_s: float) -> None:
        """Set another rate from now on."""
        self.granted_bytes, self.regranted_s = self.granted(now_s), now_s
        self.rate_bytes_per_s = rate_bytes_per_s

    def granted(self, now_s: float) -> float:
        """Return the bytes that the grants since its first byte would have carried."""
        since_s = max(self.regranted_s, self.flowing_from_s)
        return self.granted_bytes + self.rate_bytes_per_s * max(0.0, now_s - since_s)


@dataclass(slots=True, eq=False)
class Machine:
    """A host. Without a core its agent is dead."""

    name: str
    core: AgentCore | None = None
    incarnation: int = 0
    disk: Disk = field(default_factory=Disk)
    processes: dict[tuple[str, int], Process] = field(default_factory=dict)
    transfers: dict[tuple[str, str], Transfer] = field(default_factory=dict)
    link: Connection | None = None
    lease_until_s: float = -inf
    paused: bool = False
    deferred: deque[Callable[[], None]] = field(default_factory=deque)
    closed: bool = False  # the kernel isolates it
    isolate_at_s: float | None = None  # it drains until then
    switch_version: int = 0
    wake_s: float = inf
    beats_from_s: float | None = None  # heartbeats are left out since this one

    @property
    def store(self) -> StoredCheckpoints:
        """The checkpoints that its disk holds whole."""
        return self.disk.stored

    def sends(self, job: str) -> Set[int]:
        """Return sequences of the job's checkpoints that are on their way from here."""
        return {transfer.order.sequence for (name, _), transfer in self.transfers.items() if name == job}

    @property
    def held(self) -> bool:
        """True if its heartbeats are left out."""
        return self.beats_from_s is not None


def dirty_fraction(spec: JobSpec | None) -> float:
    """Return the share of a job's state that one step rewrites."""
    value = spec.params.get("dirty_fraction", DEFAULT_DIRTY) if spec else DEFAULT_DIRTY
    return float(value) if isinstance(value, int | float) else DEFAULT_DIRTY
