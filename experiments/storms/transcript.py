"""Kept scenarios as transcripts: a script, a line of dashes, and the decisive facts that followed.

The facts are those of jobs and hosts that a reader needs to follow the story; checkpoints and rates are left out.
"""

from __future__ import annotations

from controller.core.model import facts as f
from experiments.results.narration import describe
from experiments.storms.play import StormOutcome
from experiments.storms.script import FOLLOWS

DECISIVE = (
    *(f.JobDispatched, f.JobRunning, f.JobStopped, f.JobFinished, f.JobFailed, f.JobCancelled),
    *(f.JobRedirected, f.JobWaits, f.CancelOrdered, f.WorkLost, f.WorkTakenUp),
    *(f.MigrationAdmitted, f.MigrationDegraded, f.MigrationFinished, f.CheckpointRefused),
    *(f.HostReclaimed, f.HostReturned, f.HostLost, f.CoordinatorRestarted),
)


def transcript(text: str, outcome: StormOutcome) -> str:
    """Return the text of a script with what followed when it was played, in place of any that it has."""
    told = [f"{at_s:8.3f}  {describe(fact)}\n" for at_s, fact in outcome.facts if isinstance(fact, DECISIVE)]
    return text.partition(FOLLOWS)[0] + FOLLOWS + "".join(told)
