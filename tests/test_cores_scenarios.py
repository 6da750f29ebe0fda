"""Kept scenarios in tests/scenarios/*.txt: what happens, a line of dashes, and the decisive facts that follow.

Every rule is judged after every event; at the end faults stop, every job finishes and nothing is left. The meaning of a line
stands in `experiments/storms/commands.py`. After a change of decisions `REWRITE=1 pytest tests/test_cores_scenarios.py` writes
all transcripts anew, and their difference shows what has changed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from experiments.storms import parse, play

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_what_follows_is_what_the_transcript_has(path: Path) -> None:
    text = path.read_text()
    outcome = play(parse(text, path.name))
    if outcome.failure is not None:
        outcome = play(parse(text, path.name), tells_story=True)
    failure = outcome.failure
    assert failure is None, "\n".join([failure.subject, failure.rule, *failure.story])
    told = outcome.transcript(text)
    if "REWRITE" in os.environ:
        path.write_text(told)
    assert told == text


def test_each_scenario_begins_with_a_sentence_and_there_are_not_too_many_to_read() -> None:
    assert 20 <= len(SCENARIOS) <= 40
    assert all(parse(path.read_text()).remarks for path in SCENARIOS)
