"""What became of each job, in a form that two runs can be compared in: times count from the first submission of the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from controller.core.model import facts as f
from experiments.results.history import Timed


@dataclass(slots=True)
class Journey:
    """One job's way through a run. `hosts`: where it was sent, in order; `downtimes_s`: of each resumption."""

    job: str
    submitted_s: float
    finished_s: float | None = None
    hosts: list[str] = field(default_factory=list)
    downtimes_s: list[float] = field(default_factory=list)

    @property
    def completion_s(self) -> float | None:
        """Seconds from submission to the end; None if the run ended first."""
        return None if self.finished_s is None else self.finished_s - self.submitted_s

    @property
    def downtime_s(self) -> float:
        """All its interruptions together."""
        return sum(self.downtimes_s)


def first_submission_s(facts: Iterable[Timed]) -> float:
    """When the first job arrived; 0 if none did."""
    return next((at_s for at_s, fact in facts if isinstance(fact, f.JobSubmitted)), 0.0)


def journeys(facts: Sequence[Timed]) -> dict[str, Journey]:
    """All jobs, in the order of their submission."""
    begin_s = first_submission_s(facts)
    found: dict[str, Journey] = {}
    for at_s, fact in facts:
        match fact:
            case f.JobSubmitted(job=job):
                found.setdefault(job, Journey(job, at_s - begin_s))
            case f.JobDispatched(job=job, host=host):
                found[job].hosts.append(host)
            case f.JobRunning(job=job, downtime_s=float(downtime_s)):
                found[job].downtimes_s.append(downtime_s)
            case f.JobFinished(job=job):
                found[job].finished_s = at_s - begin_s
    return found
