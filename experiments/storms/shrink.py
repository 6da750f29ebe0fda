"""Make a storm that breaks a rule as short as it gets while it still breaks the same one.

Delta debugging (Zeller and Hildebrandt, 2002, ddmin) over the lines; then hosts, options and numbers are made fewer and simpler,
and the lines are tried again. A candidate counts if it fails in the same way (`StormFailure.kind`); a slip to a bug of
another kind is not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from experiments.storms.play import StormFailure, play
from experiments.storms.script import Line, Script
from experiments.storms.world import StormWorld
from topologies.errors import SpecError

MAX_TRIES = 1500
Judge = Callable[[Script], bool]


def shrink(
    script: Script,
    failure: StormFailure,
    *,
    tries: int | None = None,
    world_of: type[StormWorld] = StormWorld,
) -> Script:
    """Return the shortest script found within so many plays; the same one, if it does not fail when it is played again."""
    left = iter(range(MAX_TRIES if tries is None else tries))

    def fails(candidate: Script) -> bool:
        if next(left, None) is None:
            return False
        try:
            found = play(candidate, world_of=world_of).failure
        except SpecError:
            return False  # a host that is no more
        return found is not None and found.kind == failure.kind

    size = None
    while size != (size := (len(script.lines), len(str(script)))):
        script = _fewer_lines(script, fails)
        while simpler := next(filter(fails, _simplifications(script)), None):
            script = simpler
    return script


def _fewer_lines(script: Script, fails: Judge) -> Script:
    """Leave out a half, a quarter, an eighth, ..., each line (ddmin)."""
    lines, parts = list(script.lines), 2
    while len(lines) >= 1:
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


def _simplifications(script: Script) -> Iterator[Script]:
    yield from _smaller_campuses(script)
    for head in ("campus", "settings", "costs"):
        options: dict[str, str] = dict(getattr(script, head))
        for key in [key for key in options if key not in ("hosts", "file")]:
            fewer: dict[str, Any] = {head: {k: v for k, v in options.items() if k != key}}
            yield replace(script, **fewer)
    for n, line in enumerate(script.lines):
        for simpler in _simpler_lines(line):
            yield script.with_lines([*script.lines[:n], simpler, *script.lines[n + 1 :]])


def _smaller_campuses(script: Script) -> Iterator[Script]:
    """Yield campuses of fewer hosts; lines about those that are gone go with them."""
    for key, least in (("hosts", 1), ("on_demand", 0), ("buildings", 1), ("slots", 1)):
        have = int(script.campus.get(key, least))
        for fewer in sorted({least, have // 2, have - 1}):
            if least <= fewer < have:
                campus = {**script.campus, key: str(fewer)}
                gone = {f"{'h' if key == 'hosts' else 'od'}{n}" for n in range(fewer + 1, have + 1)}
                kept = [
                    line
                    for line in script.lines
                    if key not in ("hosts", "on_demand") or not gone.intersection(line.positional)
                ]
                yield replace(script, campus=campus, lines=tuple(kept))


def _simpler_lines(line: Line) -> Iterator[Line]:
    """Yield lines of fewer options and rounder times."""
    for word in line.words:
        if "=" in word:
            yield replace(line, words=tuple(w for w in line.words if w != word))
    for digits in (0, 1, 2):
        if round(line.at_s, digits) != line.at_s:
            yield replace(line, at_s=round(line.at_s, digits))
