"""A job of a user's own, in TOML: a file of its own, or one of a scenario's `[[jobs]]`.

Keys are `name`, `workload`, `steps`, `step`, `payload` and so on (JOB); of a workload `[params]`, of a program
`command` and its kin (PROGRAM) and `[environment]`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

import msgspec

from testbed.bounds import LARGEST_PAYLOAD_BYTES, LARGEST_STEP, within
from testbed.messages import JobSpec
from testbed.program import CHECKPOINT_EXIT_CODE, GRACE_S, NO_SIGNAL, SIGNALS, Program, Variable, wrong
from testbed.workloads.base import load_workload
from testbed.workloads.submission import EXECUTABLE, LARGEST_BYTES, cannot_run, params_of
from topologies import keys, reading, toml
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.keys import Key, Section
from topologies.spec import MAX_GPUS
from topologies.tables import Table

_LONGEST_S: Final = 1e6
_BIGGEST: Final = float(LARGEST_PAYLOAD_BYTES)
_PARAM: Final = "a text, a number, true or false"

JOB: Final = Section(
    name=Key(keys.text("a name"), "of the job; if left out, the file's", None),
    workload=Key(
        keys.text("a built-in workload, or module:Class"),
        "`synthetic`, or `module:Class`, found in the folder in which the campus was started; of a `command` `executable`",
        "synthetic",
    ),
    steps=Key(keys.whole(1, LARGEST_STEP), "that make the job"),
    step=Key(
        keys.number(Dimension.DURATION, above=True, high=_LONGEST_S),
        "GPU time of one step: what a lost step costs",
    ),
    payload=Key(
        keys.number(Dimension.SIZE, 1.0, _BIGGEST),
        f"size of a checkpoint; of a live one at most {LARGEST_BYTES / 1e9:.0f} GB",
    ),
    memory=Key(keys.number(Dimension.SIZE, high=_BIGGEST), "that its GPU must have", 0.0),
    min_capability=Key(
        keys.number(Dimension.NUMBER, high=1000.0), "CUDA compute capability that its GPU must have", 0.0
    ),
    gpus=Key(keys.whole(1, MAX_GPUS), "of one host: it computes on all of them", 1),
    loss_budget=Key(
        keys.number(Dimension.DURATION, above=True, high=1e9),
        "L_max: intervals of at most twice as much (eq. 9); the checkpoint on its way comes on top of what a reclaim costs",
        900.0,
    ),
    grace=Key(
        keys.number(Dimension.DURATION, high=1e6),
        f"for its process to end when it is cancelled, and for a program ({GRACE_S:g} s) to checkpoint; real time",
        2.0,
    ),
)
# the field of a JobSpec for a key, where it is called otherwise
FIELDS: Final = {
    "step": "step_s",
    "payload": "payload_bytes",
    "memory": "memory_bytes",
    "loss_budget": "loss_budget_s",
    "grace": "grace_s",
}
PROGRAM: Final = Section(
    command=Key(
        keys.texts("a program and its arguments", repeats=True),
        "the program, found by `PATH` or, with a slash, from the folder of this file, and its arguments",
        None,
    ),
    working_directory=Key(
        keys.text("a folder"),
        "where it runs; if left out, in a new folder of each attempt, which is gone with it",
        "",
    ),
    checkpoint_by=Key(
        keys.choice(("itself", "criu")),
        "`itself`, by the convention below; `criu`: from outside, and the other `checkpoint_` keys are not used",
        "itself",
    ),
    checkpoint_directory=Key(
        keys.text("a relative path without `..`"),
        "in that new folder, where its state is; the program is told in `RECLAIMNET_CHECKPOINT_DIRECTORY`",
        "checkpoint",
    ),
    checkpoint_signal=Key(
        keys.choice((*SIGNALS, NO_SIGNAL)),
        "asks it for a checkpoint; `none`: it takes them of itself",
        "SIGTERM",
    ),
    checkpoint_exit_code=Key(
        keys.whole(1, 255),
        "with which it exits when it has checkpointed, to be started again",
        CHECKPOINT_EXIT_CODE,
    ),
)


def load_job(path: Path) -> JobSpec:
    """Return the job of a file. SpecError names file, key, value and the allowed ones."""
    try:
        return read_job(
            Table(toml.parse(reading.read_text(path, "a job file (TOML)"))), path.stem, path.parent
        )
    except SpecError as error:
        raise error if error.source else error.within(str(path)) from None


def check_runs(spec: JobSpec, folder: Path) -> None:
    """Check that some agent of a campus that was started in `folder` can run the job.

    SpecError: none, or other steps.

    A third party's workload is imported, and made with its parameters, in this process; a program must be there.
    """
    if why := cannot_run(spec):
        raise SpecError("job", spec.name, why)
    if spec.program is not None:
        command, folder_of_job = spec.program.command[0], spec.program.working_directory
        path = spec.program.environment.get("PATH", os.environ.get("PATH"))
        if shutil.which(command, path=path) is None:
            raise SpecError("command", command, "a program that is there and may be executed")
        if folder_of_job and not Path(folder_of_job).is_dir():
            raise SpecError("working_directory", folder_of_job, "a folder that is there")
        return
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


def read_job(table: Table, name: str, folder: Path) -> JobSpec:
    """Return the job that a table describes; `folder` is where relative paths begin. SpecError."""
    read = JOB.read_all(table)
    program = _program(table, folder) if table.has("command") else None
    given = _scalars(table, "params") if program is None else {}
    if program is not None and not table.has("workload"):
        read["workload"] = EXECUTABLE
    if program is not None and not table.has("grace"):
        read["grace"] = GRACE_S
    table.done()
    read |= {"name": read["name"] or name, "payload": round(read["payload"])}
    spec = JobSpec(
        **{FIELDS.get(key, key): value for key, value in read.items()}, params=given, program=program
    )
    try:  # what the message itself asks of a name, above all
        return msgspec.convert(msgspec.to_builtins(spec), JobSpec)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        field = where.rstrip("`").removeprefix("program.").partition("[")[0] or "job"
        value = getattr(spec if hasattr(spec, field) else program, field, spec.name)
        raise SpecError(table.path(field.removesuffix("_s")), value, what) from None


def _program(table: Table, folder: Path) -> Program:
    read = PROGRAM.read_all(table)
    command, *arguments = read["command"] or [""]
    if "/" in command:
        command = str((folder / command).absolute())
    if read["working_directory"]:
        read["working_directory"] = str((folder / read["working_directory"]).absolute())
    environment = {key: str(value) for key, value in _scalars(table, "environment").items()}
    for key in environment:
        if not within(key, Variable):
            allowed = "names of up to 256 letters, digits and underscores that do not begin with a digit"
            raise SpecError(table.path("environment"), key, allowed)
    program = Program(**{**read, "command": [command, *arguments], "environment": environment})
    if found := wrong(program):
        raise SpecError(table.path(found[0]), found[1], found[2])
    return program


def _scalars(table: Table, name: str) -> dict[str, str | int | float]:
    """Return a table of texts and numbers."""
    inner = table.table(name)
    given = {key: inner.take(key, _PARAM) for key in table.take(name, "a table", {})}
    for key, value in given.items():
        if not isinstance(value, str | int | float):
            raise inner.wrong(key, _PARAM)
    return given
