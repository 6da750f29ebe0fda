"""Make a storm that breaks a rule as short as it gets while it still breaks the same one.

Delta debugging (Zeller and Hildebrandt, 2002, ddmin) over the lines. A candidate counts if it fails in the same way
(`StormFailure.kind`); a slip to a bug of another kind is not followed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from experiments.storms.play import StormFailure, play
from experiments.storms.script import Line, Script

WITHIN_S = 120.0


def shrink(script: Script, failure: StormFailure, report: Callable[[str], None] = lambda line: None) -> Script:
    """Return the shortest script found within WITHIN_S; the same one, if it does not fail when it is played again.

    `report` is called with a line each time that it has become shorter.
    """
    until_s = time.monotonic() + WITHIN_S

    def fails(lines: list[Line]) -> bool:
        if time.monotonic() >= until_s:
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
                report(f"{len(lines)} of {len(script.lines)} lines, {until_s - time.monotonic():.0f} s left")
                break
        else:
            if step == 1:
                break
            parts = min(len(lines), 2 * parts)
    return script.with_lines(lines)
