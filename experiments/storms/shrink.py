"""Make a storm that breaks a rule as short as it gets while it still breaks the same one.

Delta debugging (Zeller and Hildebrandt, 2002, ddmin) over the lines. A candidate counts if it fails in the same way
(`StormFailure.kind`); a slip to a bug of another kind is not followed.
"""

from __future__ import annotations

from experiments.storms.play import StormFailure, play
from experiments.storms.script import Line, Script

MAX_TRIES = 1500


def shrink(script: Script, failure: StormFailure) -> Script:
    """Return the shortest script found within MAX_TRIES; the same one, if it does not fail when it is played again."""
    left = iter(range(MAX_TRIES))

    def fails(lines: list[Line]) -> bool:
        if next(left, None) is None:
            return False
        found = play(script.with_lines(lines)).failure
        return found is not None and found.kind == failure.kind

    # leave out a half, a quarter, an eighth, ..., each line
    lines, parts = list(script.lines), 2
    while lines:
        step = max(1, -(-len(lines) // parts))
        for first in range(0, len(lines), step):
            rest = lines[:first] + lines[first + step :]
            if fails(rest):
                lines, parts = rest, max(2, parts - 1)
                break
        else:
            if step == 1:
                break
            parts = min(len(lines), 2 * parts)
    return script.with_lines(lines)
