"""The workload interface. A workload is a state that advances in steps, can be saved, loaded and *verified*.

To write your own: subclass `Workload`, check the parameters in `__init__` (cheap: it also runs where jobs are submitted), and
name it "your.module:YourClass" in the job. It lives in a process of its own; nothing there is shared with the agent. It
may be killed at any instruction: what counts is what `save` wrote.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from testbed.errors import SpecError, TestbedError
from topologies import plugins
from topologies.writing import naming

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from testbed.messages import JobSpec


BUILT_IN: Final = {"synthetic": "testbed.workloads.synthetic:Synthetic"}
INDEX: Final = "RECLAIMNET_INDEX"  # the environment of a job of an array: its number there, from 1
ALLOWED: Final = 'one of {}, or "module:Class" of a testbed.workloads.base.Workload'


class StateMismatch(TestbedError):
    """A state that is not the one of the step that it claims to be: it must not be used."""


class StateCopy(ABC):
    """A copy of a state, for one snapshot of a job that goes on.

    `take` is called between two steps, all else by the snapshot's thread, while steps are computed.
    """

    size_bytes: int = 0  # of memory that it takes; before `reserve`, at most
    delayed: str = ""  # why the job stands still for longer than it would have to, once that is known

    @abstractmethod
    def reserve(self) -> None:
        """Take the memory. Raises OSError: there is none."""

    @abstractmethod
    def take(self) -> str:
        """Take the state as it is now; the job stands still. Why that cannot be, or nothing."""

    @abstractmethod
    def complete(self) -> Iterable[ReadableBuffer]:
        """Return the bytes that `Workload.save` would have written then, piece by piece.

        Each holds until the next is asked for.
        """

    @abstractmethod
    def release(self) -> None:
        """Give the memory back. Nothing may look at it any more."""


class Workload(ABC):
    """Computation of a job.

    `step_number` is how many steps are done, `steps_total` how many make the job. `step_s` is the least time from the end of
    one step to the end of the next, on a reference GPU. It is for workloads that only emulate computing: the runner sleeps,
    and keeps listening, until a step is due. A workload that really computes leaves it 0.
    """

    step_number: int = 0
    step_s: float = 0.0

    def __init__(self, params: Mapping[str, object]) -> None:
        """Check and keep the parameters; allocates nothing large. Raises SpecError."""
        self.given = dict(params)

    @property
    @abstractmethod
    def steps_total(self) -> int:
        """Steps from the start to the end of the job."""

    @abstractmethod
    def begin(self) -> None:
        """Make the state of step 0."""

    @abstractmethod
    def step(self) -> None:
        """Advance the state by one step, and `step_number` with it."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write the state to a new file, quickly: the job stands still meanwhile. No fsync; OSError passes."""

    def parts(self) -> Sequence[ReadableBuffer] | None:
        """Return the state as memory: buffers (C-contiguous) whose bytes, one behind the other, are what `save` would write.

        With it a job stands still only while they are copied in memory; None (the default): for the whole of `save`.
        Asked twice a snapshot, between steps. It should be cheap, and nothing may change the bytes until the next `step`.
        """
        return None

    def state_copy(self) -> StateCopy | None:
        """Return a copy of the state to be made for one snapshot, where `parts` would not do: of a state on a GPU, for example.

        None (the default): the copy is made of `parts`. Asked between steps.
        """
        return None

    def measured(self, **values: float) -> None:
        """Report measurements of the present step (for example a loss) as a line of JSON in the job's output.

        The report draws curves of them. Any program may print such lines: `{"step": 12, "loss": 0.25}`. A number that
        is not finite is null.
        """
        told = {name: value if math.isfinite(value) else None for name, value in values.items()}
        print(json.dumps({"step": self.step_number, **told}), flush=True)

    @abstractmethod
    def load(self, path: Path) -> None:
        """Take the state and `step_number` from a saved file. Raises StateMismatch if it is not one of this job."""

    @abstractmethod
    def verify(self) -> bytes:
        """Prove that the state is that of step `step_number`, and return its digest. Raises StateMismatch if it is not."""


def write_parts(path: Path, parts: Iterable[ReadableBuffer]) -> None:
    """Write buffers to a new file, each before it asks for the next. OSError passes.

    The interpreter is free meanwhile: other threads of it run.
    """
    with naming(path), path.open("wb", buffering=0) as file:
        for part in parts:
            rest = memoryview(part).cast("B")
            while rest:
                rest = rest[os.write(file.fileno(), rest) :]


def place_of(name: str) -> tuple[str, str]:
    """Return (module, class) of a workload's name: a built-in one, "module:Class", or an entry point `reclaimnet.workloads`.

    SpecError: no such name, or not of that form. Nothing is imported.
    """
    target = BUILT_IN.get(name) or (name if ":" in name else plugins.target(name, plugins.WORKLOADS))
    module, _, class_name = target.partition(":")
    if not (class_name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        known = (*BUILT_IN, *plugins.offered(plugins.WORKLOADS))
        raise SpecError("workload", name, ALLOWED.format(", ".join(known)))
    return module, class_name


def load_workload(name: str, params: Mapping[str, object]) -> Workload:
    """Return the workload of a job: a built-in name or "module:Class". Raises SpecError for a wrong name or wrong parameters."""
    module_name, class_name = place_of(name)
    allowed = ALLOWED.format(", ".join(BUILT_IN))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise SpecError("workload", name, f"{allowed} that can be imported ({error}; path: {sys.path[:3]})") from error
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, Workload)):
        own = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, Workload) and value.__module__ == module_name
        ]
        raise SpecError("workload", name, f"{allowed}; {module_name} has {', '.join(own) or 'none'}")
    return found(params)


def params_of(spec: JobSpec) -> dict[str, object]:
    """Return parameters: a built-in workload gets the job's own figures; a third party's knows its own."""
    own = {"steps": spec.steps, "step_s": spec.step_s, "payload_bytes": spec.payload_bytes}
    return {**own, **spec.params} if spec.workload in BUILT_IN else dict(spec.params)


def announce_index(spec: JobSpec) -> None:
    """Set the environment to the job's place in its array, if it is of one."""
    if spec.index:
        os.environ[INDEX] = str(spec.index)


def number(
    params: Mapping[str, object], key: str, default: float | None, low: float, high: float, *, whole: bool = False
) -> float:
    """Return a number among parameters, checked; for use in `__init__`. Raises SpecError with the key and what is allowed."""
    value = params.get(key, default)
    kind = "whole number" if whole else "number"
    allowed = f"a {kind} from {low:g} to {high:g}"
    right_type = isinstance(value, int) if whole else isinstance(value, int | float)
    if isinstance(value, bool) or not right_type or not low <= value <= high:  # type: ignore[operator]
        raise SpecError(f"params.{key}", value, allowed)
    return value  # type: ignore[return-value]


def only(params: Mapping[str, object], known: frozenset[str]) -> None:
    """Raise SpecError for a parameter that is not among `known`."""
    for key in params:
        if key not in known:
            raise SpecError(f"params.{key}", params[key], f"no such parameter; there are {sorted(known)}")
