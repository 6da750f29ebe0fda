"""Expected loss to emergencies: its mean over their moments, given where jobs and their copies were.

In a run the work lost to emergencies is a sum over a few moments, and most of it comes from fewer still: on paper A's
campus some fifty in two months, so that it takes hundreds of runs to distinguish two systems by it. Where owners were
drawn from a law, their hazard is known at every second. Then the same mean can be had without the luck (the compensator
of a counting process: E[sum of a(T_i)] = E[integral of a(t) lambda(t) dt] for whatever a(t) is known before t):

    sum over jobs of the integral of lambda_h(t) a(t) dt

Here lambda_h is the hazard of emergencies of the host h on which the job computes, 0 from a notice on. Its *work at
risk* a(t) is in whole steps since the newest checkpoint that is elsewhere, as `lost_time` counts the part
*emergencies*. Losses beyond that, where no host that has the newest copy can be reached, are *out of reach* here as
there, and left out. So are work taken up again from a host that comes back, and losses to notices: whether a job gets
away depends on more than the moment. Hence it stands beside the work lost, and is no part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from experiments.inputs.traces.reclaim_law import ReclaimLaw
from experiments.results.hazard import EmergencyHazard
from experiments.results.history import Attempt, Story, Timed, attempts, story_of


def expected_emergencies_s(facts: Sequence[Timed], law: ReclaimLaw, ended_s: float) -> float:
    """Return the work that emergencies take in the mean, seconds of a GPU."""
    hazard, story = EmergencyHazard(law, facts, ended_s), story_of(facts)
    return sum(
        _expected_s(attempt, attempt.running_s, ended_s if attempt.ended_s is None else attempt.ended_s, hazard, story)
        for attempt in attempts(facts)
        if attempt.running_s is not None and attempt.host in law.factors and attempt.job in story.submitted
    )


def _expected_s(attempt: Attempt, from_s: float, until_s: float, hazard: EmergencyHazard, story: Story) -> float:
    """Return the same of one attempt, which computes in this time: from one change of its risk to the next."""
    submitted, key = story.submitted[attempt.job], (attempt.job, attempt.attempt)
    pace_s = submitted.step_s / attempt.speed
    replicas = story.replicas.get(key, ())  # which go on, whatever becomes of the host
    # (when, step of the job, step in a checkpoint that is elsewhere, hazard); None: as before
    changes: list[tuple[float, int | None, int | None, float | None]] = [
        *((taken.at_s, taken.step, None, None) for taken in story.snapshots.get(key, ())),
        *((max(from_s, copy.at_s), None, copy.step, None) for copy in story.elsewhere(attempt)),
        *((start_s, None, None, per_s) for start_s, _, per_s in hazard.pieces(attempt.host, from_s, until_s)),
        *((edge_s, None, None, None) for spell in replicas for edge_s in spell),
    ]
    changes = [change for change in changes if from_s <= change[0] < until_s]
    changes.sort(key=lambda change: change[0])
    total_s, since_s, work_s, kept_s, per_s = 0.0, from_s, attempt.from_step * pace_s, 0.0, 0.0
    for (at_s, step, kept, hazard_per_s), (next_s, *_) in pairwise([*changes, (until_s, None, None, None)]):
        work_s = work_s + at_s - since_s if step is None else step * pace_s  # it stood still meanwhile
        kept_s = kept_s if kept is None else max(kept_s, kept * pace_s)
        per_s = per_s if hazard_per_s is None else hazard_per_s
        since_s = at_s
        begins_s = at_s + max(0.0, kept_s - work_s)  # steps that are done again are at no risk
        if begins_s < next_s and not any(start_s <= at_s < end_s for start_s, end_s in replicas):
            middle_s = (begins_s + next_s) / 2.0 - at_s
            # the step under way is no work yet: half of one in the mean
            total_s += per_s * (next_s - begins_s) * (work_s + middle_s - kept_s - pace_s / 2.0)
    return total_s * submitted.gpus
