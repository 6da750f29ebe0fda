"""Jobs of a user's own in a scenario: `[[jobs]]` instead of the generated ones, or `[[jobs.own]]` beside them.

The keys are those of a job file (`experiments.inputs.job_file`), and `at`. Paths begin at the scenario's folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from experiments.inputs.job_file import read_job
from experiments.inputs.scenario.job import JobArrival, JobDraw
from testbed.messages import JobSpec
from testbed.program import Program
from testbed.workloads.submission import EXECUTABLE, cannot_be_made
from topologies import keys, toml
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.fields import keys_of
from topologies.keys import Kind
from topologies.tables import Table

AT: Final = keys.number(Dimension.DURATION)  # when it is submitted, from the run's beginning


def read_user_jobs(tables: Iterable[Table], folder: Path, dirty_fraction: float) -> tuple[JobArrival, ...]:
    """Return the jobs of a list of tables. SpecError names key, value and the allowed ones."""
    jobs = []
    for number, table in enumerate(tables, 1):
        at_s = AT.read(table, "at", 0.0)
        spec = read_job(table, f"own{number}", folder)
        if why := cannot_be_made(spec):
            raise SpecError(table.path("workload"), spec.workload, why)
        job = JobDraw(
            spec.name,
            spec.payload_bytes,
            spec.steps,
            spec.step_s,
            dirty_fraction,
            spec.memory_bytes,
            spec.min_capability,
            spec.loss_budget_s,
            given=spec,
        )
        jobs.append(JobArrival(at_s, job))
    return tuple(jobs)


def check_names(arrivals: Iterable[JobArrival], *, beside_generated: bool) -> None:
    """Raise SpecError for two jobs of one name, or a name that a generated job may have (j1, j2, ...)."""
    names: set[str] = set()
    for name in (arrival.job.name for arrival in arrivals):
        generated = beside_generated and name[:1] == "j" and name[1:].isdecimal()
        if name in names or generated:
            taken = ", nor j1, j2, ... as generated jobs are called" if beside_generated else ""
            raise SpecError("jobs.name", name, f"a name that no job before it has{taken}")
        names.add(name)


def toml_of(at_s: float, given: JobSpec) -> Iterator[str]:
    """Yield the lines of a job's table, without the head."""
    yield f"at = {AT.text(at_s)}"
    for name, kind, _ in keys_of(JobSpec):
        value = getattr(given, name)
        if value is not None and not (name == "workload" and value == EXECUTABLE):
            yield _line(kind, name, value)
    if given.params:
        yield f"params = {toml.inline((key, _scalar(value)) for key, value in given.params.items())}"
    if (program := given.program) is not None:
        for name, kind, _ in keys_of(Program):
            if value := getattr(program, name):
                yield _line(kind, name, value)
        if program.environment:
            yield f"environment = {toml.inline((key, toml.quote(value)) for key, value in program.environment.items())}"


def _line(kind: Kind, name: str, value: object) -> str:
    return f"{kind.key(name)} = {kind.text(value)}"


def _scalar(value: str | int | float | bool) -> str:
    if isinstance(value, str):
        return toml.quote(value)
    return str(value).lower() if isinstance(value, bool) else repr(value)
