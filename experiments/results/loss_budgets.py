"""Check of jobs' loss budgets as paper A's eq. (9) has them: intervals of at most 2 L_max.

That bounds half an interval, D/2, and not D/2 + C/b, what a reclaim costs in the mean: the checkpoint on its way comes
on top. What jobs had at risk was read from the journal of paper A's campus (L_max of 5 min; seed 8101, 20 days). Those
with more than L_max in the mean had 44 % of all jobs' time under reclaimnet and 43 % under one-interval. They had 99 %
under TV-FI, and all of it under Slurm-PR and static.

Counted are the intervals that a job had, from one snapshot to the next, and not those planned. Where links are slow, a
row that plans ten minutes waits for its last checkpoint to leave, and takes fewer snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from experiments.inputs.traces import JobArrival
from experiments.results.history import Timed, attempts, end_s, story_of
from experiments.results.losses import SECONDS_AN_HOUR
from experiments.results.run_context import RunContext
from topologies.spec import Role

# of the time that jobs run, %: intervals may be above what loss budgets allow for that much
MAX_OVER = 3.0


def hours_over_budget(facts: Sequence[Timed], arrivals: Iterable[JobArrival], context: RunContext) -> list[float]:
    """Return hours that jobs ran on owners' hosts: [of them in intervals above twice the job's `loss_budget_s`, all].

    An interval may be a step longer, for a snapshot waits for the end of one. Replicas need no checkpoint.
    """
    most_s = {each.job.name: 2.0 * each.job.loss_budget_s + each.job.step_s for each in arrivals}
    owned = {host.name for host in context.campus.hosts if host.role is Role.VOLUNTEER}
    story, hours = story_of(facts), [0.0, 0.0]
    for attempt in attempts(facts):
        key = attempt.job, attempt.attempt
        if attempt.host not in owned or attempt.running_s is None or key in story.replicas:
            continue
        until_s = end_s(facts, context.ended_at_s) if attempt.ended_s is None else attempt.ended_s
        taken_s = (each.at_s for each in story.snapshots.get(key, ()))
        for from_s, to_s in pairwise((attempt.running_s, *taken_s, until_s)):
            hours[0] += (to_s - from_s > most_s[attempt.job] / attempt.speed) * (to_s - from_s) / SECONDS_AN_HOUR
            hours[1] += (to_s - from_s) / SECONDS_AN_HOUR
    return hours
