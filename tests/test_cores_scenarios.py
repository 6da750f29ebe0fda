"""Kept scenarios in tests/scenarios/*.txt: what happens, a line of dashes, and the decisive facts that follow.

Every rule is judged after every event; at the end faults stop, every job finishes and nothing is left. The meaning of a line
stands in `experiments/storms/commands.py`. After a change of decisions `REWRITE=1 pytest tests/test_cores_scenarios.py` writes
all transcripts anew, and their difference shows what has changed.
"""

import os
from pathlib import Path

import pytest

from controller.core.model import facts as f
from experiments.results.narration import describe
from experiments.storms import parse, play
from experiments.storms.script import FOLLOWS

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
# the facts of jobs and hosts that a reader needs to follow a kept scenario: checkpoints and rates are left out
DECISIVE = (
    *(f.JobDispatched, f.JobRunning, f.JobStopped, f.JobFinished, f.JobFailed, f.JobCancelled),
    *(f.JobRedirected, f.JobWaits, f.CancelOrdered, f.WorkLost, f.WorkTakenUp),
    *(f.MigrationAdmitted, f.MigrationDegraded, f.MigrationFinished, f.CheckpointRefused),
    *(f.HostReclaimed, f.HostReturned, f.HostLost, f.CoordinatorRestarted),
)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_what_follows_is_what_the_transcript_has(path: Path) -> None:
    text = path.read_text()
    outcome = play(parse(text, path.name))
    if outcome.failure is not None:
        outcome = play(parse(text, path.name), tells_story=True)
    failure = outcome.failure
    assert failure is None, "\n".join([failure.subject, failure.rule, *failure.story])
    followed = [f"{at_s:8.3f}  {describe(fact)}\n" for at_s, fact in outcome.facts if isinstance(fact, DECISIVE)]
    told = text.partition(FOLLOWS)[0] + FOLLOWS + "".join(followed)
    if "REWRITE" in os.environ:
        path.write_text(told)
    assert told == text


def test_each_scenario_begins_with_a_sentence_and_there_are_not_too_many_to_read() -> None:
    assert 20 <= len(SCENARIOS) <= 40
    assert all(parse(path.read_text()).remarks for path in SCENARIOS)
