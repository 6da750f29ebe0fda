"""Messages between an agent and the process of a job, framed by `testbed.framing` over a socket pair.

A job's process runs anybody's code. What it reports goes on to the coordinator, so the ranges of its numbers are those of
`testbed.bounds`: a step that no message can carry ends the job that reports it, and not its host's connection.
"""

from __future__ import annotations

from typing import Final

import msgspec

from testbed.bounds import Seconds, Sequence, StateDigest, Step
from testbed.framing import Codec
from testbed.messages import JobSpec


class Start(msgspec.Struct, tag="start", frozen=True):
    """Order to begin, or go on from the state in the file `restore`."""

    job: JobSpec
    attempt: int
    restore: str | None
    folder: str = ""  # of a program: of this attempt alone, empty
    slots: tuple[int, ...] = (0,)  # the GPUs of its host that it has, by number
    speed: float = 1.0  # of these: a step that is only emulated takes `step_s` over it


class Snapshot(msgspec.Struct, tag="snapshot", frozen=True):
    """Order to save the state to `path`; `number` comes back with the answer.

    `stop`: the job stands still until it is written. `final`: it need not go on after it, and is killed then.
    """

    number: int
    path: str
    stop: bool
    final: bool = False


class Stop(msgspec.Struct, tag="stop", frozen=True):
    """Order to end now; the state is not needed."""


class Started(msgspec.Struct, tag="started", frozen=True):
    """Report that the state is verified to be that of `step`, and the job runs."""

    step: Step
    digest: StateDigest


class Progress(msgspec.Struct, tag="progress", frozen=True):
    """Report that the workload has done `step` steps."""

    step: Step


class SnapshotTaken(msgspec.Struct, tag="snapshot_taken", frozen=True):
    """Report that the state of `step` is in the file.

    The file took `write_s` to write; the job stood still for `pause_s`.

    The process's report of what its agent then sends to the coordinator under the same name.

    `stopped`: why it stood still until the state was written, or fetched from a GPU, though it need not have; empty: it
    did not, or was to.
    """

    number: Sequence
    step: Step
    pause_s: Seconds
    write_s: Seconds
    stopped: str = ""


class SnapshotFailed(msgspec.Struct, tag="snapshot_failed", frozen=True):
    """Report that the file could not be written; the job goes on.

    It becomes the agent's event of the same name.
    """

    number: Sequence
    reason: str


class Finished(msgspec.Struct, tag="finished", frozen=True):
    """Report that the last step is done and the state is verified."""

    step: Step
    digest: StateDigest


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """Report that the job cannot go on; the process ends."""

    reason: str


Order = Start | Snapshot | Stop
Report = Started | Progress | SnapshotTaken | SnapshotFailed | Finished | Failed

CODEC: Final[Codec[Order | Report]] = Codec(Order | Report)
