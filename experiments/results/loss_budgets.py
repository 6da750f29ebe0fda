"""Check of jobs' loss budgets as paper A's eq. (9) has them: intervals of at most 2 L_max.

That bounds half an interval, D/2, and not D/2 + C/b, what a reclaim costs in the mean: the checkpoint on its way comes
on top. It is what was *planned*, besides: a row that plans ten minutes whatever its links carry is never above 2 L_max
of ten, and its checkpoints arrive when they can. What jobs had at risk was read from the journal of paper A's campus
(L_max of 5 min; seed 8101, 20 days). Those with more than L_max in the mean had 44 % of all jobs' time under reclaimnet
and 43 % under one-interval. They had 99 % under TV-FI, and all of it under Slurm-PR and static.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controller.core.model import facts as f
from experiments.inputs.traces import JobArrival
from experiments.results.history import Timed
from experiments.results.losses import SECONDS_AN_HOUR

ROUNDING = 1e-6  # relative


def hours_over_budget(
    facts: Sequence[Timed], arrivals: Iterable[JobArrival], ended_at_s: float
) -> list[float]:
    """Return hours that jobs ran with planned checkpoints: [of them at intervals above twice the job's `loss_budget_s`, all]."""
    most_s = {each.job.name: 2.0 * each.job.loss_budget_s * (1.0 + ROUNDING) for each in arrivals}
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
                planned[fact.job] = at_s, fact.interval_s > most_s[fact.job]
    for job in list(planned):
        until(ended_at_s, job)
    return hours
