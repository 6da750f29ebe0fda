"""Clocks of several machines, read through the actors of a run: how far each is off, and how well that is known.

Times of a part's records are moved into those of the coordinator's machine. They are wrong by half of a reading's round trip
at most, and by how far two clocks drift apart during the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from testbed.emulation.fidelity import Judged
from testbed.trust.channel import SKEW_S

READINGS = 10
# a quarter of the 100 ms between two reports of the paper's agents, as of a timer's lateness (`fidelity.Bounds`)
MAX_ERROR_S = 0.025


class Offset(NamedTuple):
    """Offset of a machine's clocks from this one's, in seconds. `error_s`: of the first, either way."""

    monotonic_s: float
    error_s: float
    wall_s: float


def read_offset(clocks: Callable[[], tuple[float, float]]) -> Offset:
    """Return the best of some readings. `clocks`: a machine's (CLOCK_MONOTONIC, CLOCK_REALTIME)."""
    found = []
    for _ in range(READINGS):
        asked_s, wall_s = time.monotonic(), time.time()
        there_s, wall_there_s = clocks()
        half_s = (time.monotonic() - asked_s) / 2.0
        found.append(Offset(there_s - asked_s - half_s, half_s, wall_there_s - wall_s - half_s))
    return min(found, key=lambda each: each.error_s)


def figures(
    before: Mapping[str, Offset], after: Mapping[str, Offset], first: str
) -> tuple[dict[str, float], list[Judged]]:
    """Return each machine's clock against that of the coordinator's machine, `first`, and what is judged of these figures.

    `after`: of machines that are left.
    """
    told: dict[str, float] = {}
    judged: list[Judged] = []
    base = before[first]
    for machine, offset in before.items():
        off_s, wall_s = offset.monotonic_s - base.monotonic_s, offset.wall_s - base.wall_s
        error_s = offset.error_s + base.error_s if machine != first else 0.0
        if machine in after and first in after:
            then_s = after[machine].monotonic_s - after[first].monotonic_s
            error_s += max(0.0, abs(then_s - off_s) - after[machine].error_s - after[first].error_s)
        for what, found in (("offset", off_s), ("wall", wall_s), ("error", error_s)):
            told[f"clock_{machine}_{what}_s"] = found
        judged += [
            Judged(f"machine {machine}, wall clock against the coordinator's, in seconds", abs(wall_s), SKEW_S),
            Judged(f"machine {machine}, by how much its clock is not known, in seconds", error_s, MAX_ERROR_S),
        ]
    return told, judged
