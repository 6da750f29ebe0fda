"""Whether a run keeps its jobs' loss budgets: with an interval T between checkpoints a reclaim costs a job T / 2 in the mean, and
at most L_max is allowed (paper A, eq. 9), hence T at most 2 L_max."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.core.model import facts as f
from experiments.results.history import Timed
from experiments.results.losses import SECONDS_AN_HOUR

ROUNDING = 1e-6  # relative


def hours_over_budget(
    facts: Sequence[Timed], loss_budget_s: Mapping[str, float], ended_at_s: float
) -> list[float]:
    """Hours that jobs ran with planned checkpoints: [of them at intervals above twice the job's `loss_budget_s`, all]."""
    planned: dict[str, tuple[float, bool]] = {}  # since when, and whether it is too long
    hours = [0.0, 0.0]

    def until(at_s: float, job: str) -> None:
        since_s, over = planned.pop(job, (at_s, False))
        hours[0] += over * (at_s - since_s) / SECONDS_AN_HOUR
        hours[1] += (at_s - since_s) / SECONDS_AN_HOUR

    for at_s, fact in facts:
        if isinstance(fact, f.CheckpointPlanned | f.JobStopped | f.JobFinished):
            until(at_s, fact.job)
            if isinstance(fact, f.CheckpointPlanned):
                most_s = 2.0 * loss_budget_s[fact.job] * (1.0 + ROUNDING)
                planned[fact.job] = at_s, fact.interval_s > most_s
    for job in list(planned):
        until(ended_at_s, job)
    return hours
