"""A job as the world gets it, drawn or a user's own, and its submission."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import msgspec

from testbed.bounds import LARGEST_PAYLOAD_BYTES, LARGEST_STEP, NAME_RULE, is_name
from testbed.messages import JobSpec
from topologies import keys
from topologies.dimension import DURATION, SIZE, Dimension
from topologies.errors import SpecError
from topologies.fields import check, quantity, whole

D = Dimension


@dataclass(frozen=True, slots=True)
class JobDraw:
    """A job: so many steps of `step_s` on one reference GPU, with a state of `payload_bytes` that a checkpoint must carry.

    SpecError: a number that is none, or that no job can have.
    """

    name: str
    payload_bytes: int = field(metadata={**SIZE, "kind": keys.whole(1, LARGEST_PAYLOAD_BYTES)})
    steps: int = whole(1, LARGEST_STEP)
    step_s: float = quantity(D.DURATION, above=True)
    dirty_fraction: float = quantity(D.NUMBER, high=1.0)  # share of the state that a step rewrites
    memory_bytes: float = quantity(D.SIZE)  # of a GPU
    min_capability: float = quantity(D.NUMBER)
    loss_budget_s: float = quantity(D.DURATION, above=True)
    workload_class: str | None = None
    given: JobSpec | None = None  # a user's own job, at real scale: its workload, params or program

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not is_name(self.name):
            raise SpecError("job", self.name, f"a name of {NAME_RULE}")
        check(self, f"job {self.name}")

    @property
    def run_s(self) -> float:
        """Seconds of work of a reference GPU, without interruptions."""
        return self.steps * self.step_s

    def spec(self) -> JobSpec:
        """Return the job as it is submitted, in either world.

        Its state is its own: a seed by its name. Jobs of one seed would hold the same bytes at the same step: a store
        that has one would lack little of another. A user's own job keeps its own state.
        """
        figures: dict[str, Any] = {
            "step_s": self.step_s,
            "payload_bytes": self.payload_bytes,
            "memory_bytes": self.memory_bytes,
            "min_capability": self.min_capability,
            "loss_budget_s": self.loss_budget_s,
        }
        if self.given is not None:
            return msgspec.structs.replace(self.given, name=self.name, **figures)
        figures["workload_class"] = self.workload_class
        figures["params"] = {"dirty_fraction": self.dirty_fraction, "seed": crc32(self.name.encode())}
        return JobSpec(name=self.name, steps=self.steps, **figures)


@dataclass(frozen=True, slots=True)
class JobArrival:
    """A job is submitted. SpecError: at no time of a run."""

    at_s: float = field(metadata={**DURATION, "kind": keys.number(D.DURATION)})
    job: JobDraw

    def __post_init__(self) -> None:
        check(self, f"job {self.job.name}")
