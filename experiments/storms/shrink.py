"""Make a storm that breaks a rule as short as it gets while it still breaks the same one.

Delta debugging (Zeller and Hildebrandt, 2002, ddmin) over the lines, then over the options of the first lines and the hosts.
A candidate counts if it fails in the same way (`StormFailure.kind`); a slip to a bug of another kind is not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from experiments.storms.play import StormFailure, play
from experiments.storms.script import Script
from topologies.errors import SpecError

MAX_TRIES = 1500


def shrink(script: Script, failure: StormFailure, *, tries: int | None = None) -> Script:
    """Return the shortest script found within so many plays; the same one, if it does not fail when it is played again."""
    left = iter(range(MAX_TRIES if tries is None else tries))

    def fails(candidate: Script) -> bool:
        if next(left, None) is None:
            return False
        try:
            found = play(candidate).failure
        except SpecError:
            return False  # a host that is no more
        return found is not None and found.kind == failure.kind

    size = None
    while size != (size := len(str(script))):
        script = _fewer_lines(script, fails)
        while simpler := next(filter(fails, _simpler_grounds(script)), None):
            script = simpler
    return script


def _fewer_lines(script: Script, fails: Callable[[Script], bool]) -> Script:
    """Leave out a half, a quarter, an eighth, ..., each line (ddmin)."""
    lines, parts = list(script.lines), 2
    while lines:
        step = max(1, -(-len(lines) // parts))
        for first in range(0, len(lines), step):
            rest = lines[:first] + lines[first + step :]
            if fails(script.with_lines(rest)):
                lines, parts = rest, max(2, parts - 1)
                break
        else:
            if step == 1:
                break
            parts = min(len(lines), 2 * parts)
    return script.with_lines(lines)


def _simpler_grounds(script: Script) -> Iterator[Script]:
    """Yield the script with fewer hosts, without lines about those that are gone, and with each option left out."""
    hosts = int(script.campus.get("hosts", 1))
    for fewer in sorted({1, hosts // 2, hosts - 1} - {0, hosts}):
        gone = {f"h{n}" for n in range(fewer + 1, hosts + 1)}
        kept = tuple(line for line in script.lines if not gone.intersection(line.positional))
        yield replace(script, campus={**script.campus, "hosts": str(fewer)}, lines=kept)
    for key in [key for key in script.campus if key not in ("hosts", "file")]:
        yield replace(script, campus={k: v for k, v in script.campus.items() if k != key})
    for key in script.settings:
        yield replace(script, settings={k: v for k, v in script.settings.items() if k != key})
