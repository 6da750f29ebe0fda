"""Scenarios in tests/scenarios/*.txt, each a story that a storm found or that a reader should know: `experiments.storms` scripts.

Every invariant is checked after every event; at the end faults stop, everything finishes, nothing is left, and all promises were
kept. What lines mean is said in `experiments/storms/commands.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.storms import parse, play

FOLDER = Path(__file__).parent / "scenarios"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    script = parse(path.read_text(), path.name)
    failure = play(script).failure
    if failure is not None:
        failure = play(script, tells_story=True).failure
    assert failure is None, "\n".join([failure.subject, failure.rule, *failure.story])


def test_there_are_scenarios() -> None:
    assert len(list(FOLDER.glob("*.txt"))) >= 20
