"""A job of a user's own, in TOML: a file of its own, or one of a scenario's `[[jobs]]`.

Keys are `name`, `workload`, `steps`, `step`, `payload` and so on (JobSpec); of a workload `[params]`, of a program
`command` and its kin (Program) and `[environment]`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import structs

from testbed.bounds import NAME_RULE, suffixed, within
from testbed.messages import JobSpec
from testbed.program import GRACE_S, WORDS, Program, Variable, wrong
from testbed.workloads.base import announce_index, load_workload, params_of
from testbed.workloads.submission import EXECUTABLE, cannot_run
from topologies import reading, toml
from topologies.errors import SpecError
from topologies.fields import values_of
from topologies.tables import Table

_PARAM: Final = "a text, a number, true or false"


# of a command without a file, unless --set has others: an hour, which the clock counts, and a small checkpoint
DECLARED: Final = {"steps": 3600, "step": "1 s", "payload": "10 MB"}


class Submission(NamedTuple):
    """Jobs to be submitted: one, or an array."""

    source: str  # the file, or the command
    jobs: tuple[JobSpec, ...]
    is_named: bool  # its user gave a name


def load_job(path: Path) -> JobSpec:
    """Return the job of a file. SpecError names file, key, value and the allowed ones."""
    return of_file(path).jobs[0]


def of_file(
    path: Path,
    settings: Sequence[str] = (),
    count: int | None = None,
    declared: Mapping[str, Any] = MappingProxyType({}),
) -> Submission:
    """Return the job of a file, or `count` of it. SpecError.

    `settings`: KEY=VALUE instead of what the file has. `declared`: what it need not have.
    """
    try:
        data = changed({**declared, **toml.parse(reading.read_text(path, "a job file (TOML)"))}, settings)
        return _submission(str(path), data, path.stem, path.parent, count)
    except SpecError as error:
        raise error if error.source else error.within(str(path)) from None


def of_command(command: Sequence[str], settings: Sequence[str] = (), count: int | None = None) -> Submission:
    """Return the job that is a command, run in the present folder, as DECLARED unless `settings` have other keys. SpecError."""
    folder = Path.cwd()
    data = changed({**DECLARED, "command": [*command], "working_directory": str(folder)}, settings)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", Path(command[0]).stem).lstrip("_.-")
    return _submission(shlex.join(command), data, name or "job", folder, count)


def changed(data: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return the tables of a job with each KEY=VALUE in the place of its own. A value that is no TOML is a text. SpecError."""
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise SpecError("--set", setting, "KEY=VALUE, a key of a job file")
        try:
            given = toml.parse(f"{key} = {text}")
        except SpecError:
            given = toml.parse(f"{key} = {toml.quote(text)}")
        for name, value in given.items():
            before = data.get(name)
            data[name] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return data


def _submission(source: str, data: dict[str, Any], name: str, folder: Path, count: int | None) -> Submission:
    job = read_job(Table(data), name, folder)
    if job.output is not None:
        job = structs.replace(job, returns_to=str(folder.absolute()))
    jobs = tuple(structs.replace(job, name=suffixed(job.name, f"-{n + 1}"), index=n + 1) for n in range(count or 0))
    return Submission(source, jobs or (job,), "name" in data)


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
        if (found := shutil.which(command, path=path)) is None:
            raise SpecError("command", command, "a program that is there and may be executed")
        if not Path(interpreter := _interpreter(found)).exists():
            raise SpecError(
                "command", command, f"one whose interpreter {interpreter!r} is there; lines end with LF, not CR LF"
            )
        if folder_of_job and not Path(folder_of_job).is_dir():
            raise SpecError("working_directory", folder_of_job, "a folder that is there")
        return
    sys.path.insert(0, str(folder))
    announce_index(spec)
    try:
        workload = load_workload(spec.workload, params_of(spec))
    except SpecError:
        raise
    except (Exception, SystemExit) as error:  # the module is a user's, and may raise anything
        raise SpecError(
            "workload", spec.workload, f"one that can be made; it raised {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(str(folder))
    if workload.steps_total != spec.steps:
        raise SpecError("steps", spec.steps, f"{workload.steps_total}, as {spec.workload} makes of its params")


def _interpreter(program: str) -> str:
    """Return the interpreter that the first line of a script names; the program itself, if it is none."""
    with Path(program).open("rb") as file:
        head = file.readline(256)
    words = re.split(rb"[ \t]", head[2:].rstrip(b"\n"))
    return os.fsdecode(next(filter(None, words), b"")) if head.startswith(b"#!") else program


def read_job(table: Table, name: str, folder: Path) -> JobSpec:
    """Return the job that a table describes; `folder` is where relative paths begin. SpecError."""
    read = {"name": name, **values_of(JobSpec, table, within_limits=True)}
    program = _program(table, folder) if table.has("command") else None
    given = _scalars(table, "params") if program is None else {}
    if program is not None and not table.has("workload"):
        read["workload"] = EXECUTABLE
    if program is not None and not table.has("grace"):
        read["grace_s"] = GRACE_S
    table.done()
    read["payload_bytes"] = round(read["payload_bytes"])
    read["reads"] = tuple(str((folder / each).absolute()) for each in read.get("reads", ()))
    spec = JobSpec(**read, params=given, program=program)
    try:  # what the message itself asks of a name, above all
        return msgspec.convert(msgspec.to_builtins(spec), JobSpec)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        field = where.rstrip("`").removeprefix("program.").partition("[")[0] or "job"
        value = getattr(spec if hasattr(spec, field) else program, field, spec.name)
        rules = dict.fromkeys(("command", "environment", "working_directory"), WORDS)
        rules["name"] = f"{NAME_RULE}; without a key `name`, a job has its file's"
        raise SpecError(table.path(field.removesuffix("_s")), f"{value}"[:80], rules.get(field, what)) from None


def _program(table: Table, folder: Path) -> Program:
    read = values_of(Program, table, within_limits=True)
    command, *arguments = read["command"]
    if "/" in command:
        command = str((folder / command).absolute())
    if "working_directory" in read:
        read["working_directory"] = str((folder / read["working_directory"]).absolute())
    for key, path in (("command", command), ("working_directory", read.get("working_directory", ""))):
        if reading.readable(path) != path:
            raise SpecError(table.path(key), path, "a path of UTF-8 text, as the journal keeps it")
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
