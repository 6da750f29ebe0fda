"""Clocks of several machines, read through the actors of a run: how far each is off, and how well that is known.

Times of a part's records are moved into those of the coordinator's machine. They are wrong by half of a reading's round trip
at most, and by how far two clocks drift apart during the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
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


def figures(before: Mapping[str, Offset], after: Mapping[str, Offset], first: str) -> dict[str, float]:
    """Return each machine's clock against that of the coordinator's machine, `first`; `after`: of machines that are left."""
    told: dict[str, float] = {}
    base = before[first]
    for machine, offset in before.items():
        told[f"clock_{machine}_offset_s"] = offset.monotonic_s - base.monotonic_s
        told[f"clock_{machine}_wall_s"] = offset.wall_s - base.wall_s
        error_s = offset.error_s + base.error_s if machine != first else 0.0
        if machine in after and first in after:
            then_s = after[machine].monotonic_s - after[first].monotonic_s
            error_s += max(
                0.0, abs(then_s - told[f"clock_{machine}_offset_s"]) - after[machine].error_s - after[first].error_s
            )
        told[f"clock_{machine}_error_s"] = error_s
    return told


def judged(told: Mapping[str, float]) -> Iterator[Judged]:
    """Yield what is judged of these figures."""
    for key, found in told.items():
        machine = key.removeprefix("clock_").rpartition("_")[0].rpartition("_")[0]
        if key.endswith("_error_s"):
            yield Judged(f"machine {machine}, by how much its clock is not known, in seconds", found, MAX_ERROR_S)
        elif key.endswith("_wall_s"):
            yield Judged(f"machine {machine}, wall clock against the coordinator's, in seconds", abs(found), SKEW_S)
