"""A job of a user's own, as a TOML file: `name`, `workload`, `steps`, `step`, `payload` and so on (JOB), and `[params]`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from testbed.bounds import LARGEST_PAYLOAD_BYTES, LARGEST_STEP
from testbed.messages import JobSpec
from testbed.ranks import MOST_RANKS
from testbed.workloads.base import load_workload
from testbed.workloads.submission import cannot_run, params_of
from topologies import toml
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.keys import Key, Quantity, Section, Text, Whole
from topologies.tables import Table

_LONGEST_S: Final = 1e6
_BIGGEST: Final = float(LARGEST_PAYLOAD_BYTES)
_PARAM: Final = "a text, a number, true or false"

JOB: Final = Section(
    name=Key(Text("a name"), "of the job; if left out, the file's", None),
    workload=Key(
        Text("a built-in workload, or module:Class"),
        "`synthetic`, or `module:Class`, found in the folder in which the campus was started",
        "synthetic",
    ),
    steps=Key(Whole(1, LARGEST_STEP), "that make the job"),
    step=Key(
        Quantity(Dimension.DURATION, above=True, high=_LONGEST_S),
        "GPU time of one step: what a lost step costs",
    ),
    payload=Key(Quantity(Dimension.SIZE, 1.0, _BIGGEST), "size of a checkpoint"),
    memory=Key(Quantity(Dimension.SIZE, high=_BIGGEST), "that its GPU must have", 0.0),
    min_capability=Key(
        Quantity(Dimension.NUMBER, high=1000.0), "CUDA compute capability that its GPU must have", 0.0
    ),
    ranks=Key(Whole(1, MOST_RANKS), "GPUs that it computes on at once, all or none: a gang", 1),
    loss_budget=Key(
        Quantity(Dimension.DURATION, above=True, high=1e9),
        "work that a reclaim without notice may cost (L_max)",
        900.0,
    ),
)


def load_job(path: Path) -> JobSpec:
    """The job of a file. SpecError says file, key, value and what is allowed."""
    try:
        return _job(Table(toml.parse(toml.read_text(path, "a job file (TOML)"))), path.stem)
    except SpecError as error:
        raise error if error.source else error.within(str(path)) from None


def check_runs(spec: JobSpec, folder: Path) -> None:
    """SpecError if no agent of a campus that was started in `folder` could run the job, or its workload has other steps.

    A third party's workload is imported, and made with its parameters, in this process.
    """
    if why := cannot_run(spec):
        raise SpecError("job", spec.name, why)
    sys.path.insert(0, str(folder))
    try:
        workload = load_workload(spec.workload, params_of(spec))
    except SpecError:
        raise
    except Exception as error:  # the module is a user's, and may raise anything
        raise SpecError(
            "workload", spec.workload, f"one that can be made; it raised {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(str(folder))
    if workload.steps_total != spec.steps:
        raise SpecError(
            "steps", spec.steps, f"{workload.steps_total}, as {spec.workload} makes of its params"
        )


def _job(table: Table, name: str) -> JobSpec:
    read: dict[str, Any] = {}
    for key, declared in JOB.items():
        read[key] = JOB.read(table, key)
        if table.has(key) and (allowed := declared.kind.wrong(read[key])):
            raise table.wrong(key, allowed)
    params = table.table("params")
    given = {key: params.take(key, _PARAM) for key in table.take("params", "a table", {})}
    for key, value in given.items():
        if not isinstance(value, str | int | float):
            raise params.wrong(key, _PARAM)
    table.done()
    spec = JobSpec(
        read["name"] or name,
        read["steps"],
        read["step"],
        round(read["payload"]),
        read["workload"],
        given,
        read["memory"],
        read["min_capability"],
        read["loss_budget"],
        read["ranks"],
    )
    try:  # what the message itself asks of a name, above all
        return msgspec.convert(msgspec.to_builtins(spec), JobSpec)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        key = where.rstrip("`") or "job"
        raise SpecError(key, getattr(spec, key, spec.name), what) from None
