"""Jobs of a user's own in a scenario: `[[jobs]]` instead of the generated ones, or `[[jobs.own]]` beside them.

The keys are those of a job file (`experiments.inputs.job_file`), and `at`. Paths begin at the scenario's folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from experiments.inputs.job_file import JobKeys, ProgramKeys, read_job
from testbed.messages import JobSpec
from testbed.workloads.submission import EXECUTABLE, cannot_be_made
from topologies import keys, toml
from topologies.dimension import DURATION, NUMBER, SIZE, Dimension
from topologies.errors import SpecError
from topologies.fields import keys_of
from topologies.keys import Kind
from topologies.tables import Table

AT: Final = keys.number(Dimension.DURATION)  # when it is submitted, from the run's beginning


@dataclass(frozen=True, slots=True)
class UserJob:
    """A job of a user's own: `given` as it was read; the other figures follow the scenario's scale."""

    at_s: float = field(metadata=DURATION)
    payload_bytes: int = field(metadata=SIZE)
    step_s: float = field(metadata=DURATION)
    memory_bytes: float = field(metadata=SIZE)
    min_capability: float = field(metadata=NUMBER)
    loss_budget_s: float = field(metadata=DURATION)
    given: JobSpec

    @classmethod
    def of(cls, given: JobSpec, at_s: float = 0.0) -> UserJob:
        """Return a job as it is submitted, at real scale."""
        return cls(
            at_s,
            given.payload_bytes,
            given.step_s,
            given.memory_bytes,
            given.min_capability,
            given.loss_budget_s,
            given,
        )

    @property
    def name(self) -> str:
        """The job's name."""
        return self.given.name


def read_user_jobs(tables: Iterable[Table], folder: Path) -> tuple[UserJob, ...]:
    """Return the jobs of a list of tables. SpecError names key, value and the allowed ones."""
    jobs = []
    for number, table in enumerate(tables, 1):
        at_s = AT.read(table, "at", 0.0)
        spec = read_job(table, f"own{number}", folder)
        if why := cannot_be_made(spec):
            raise SpecError(table.path("workload"), spec.workload, why)
        jobs.append(UserJob.of(spec, at_s))
    return tuple(jobs)


def check_names(jobs: Iterable[UserJob], *, beside_generated: bool) -> None:
    """Raise SpecError for two jobs of one name, or a name that a generated job may have (j1, j2, ...)."""
    names: set[str] = set()
    for job in jobs:
        generated = beside_generated and job.name[:1] == "j" and job.name[1:].isdecimal()
        if job.name in names or generated:
            taken = ", nor j1, j2, ... as generated jobs are called" if beside_generated else ""
            raise SpecError("jobs.name", job.name, f"a name that no job before it has{taken}")
        names.add(job.name)


def toml_of(job: UserJob) -> Iterator[str]:
    """Yield the lines of its table, without the head."""
    given = job.given
    yield f"at = {AT.text(job.at_s)}"
    for name, kind, _ in keys_of(JobKeys):
        value = getattr(given, name)
        if value is not None and not (name == "workload" and value == EXECUTABLE):
            yield _line(kind, name, value)
    if given.params:
        yield f"params = {toml.inline((key, _scalar(value)) for key, value in given.params.items())}"
    if (program := given.program) is not None:
        for name, kind, _ in keys_of(ProgramKeys):
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
