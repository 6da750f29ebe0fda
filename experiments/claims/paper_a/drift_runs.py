"""Paper A's campus with a hazard that jumps: owners come back more often from a day on, and each estimator notices at some time.

Each host is a renewal process of its own here (not so many reclaims in all, as in `paper_campus`): lent until its hazard has
collected a unit-exponential draw, at 1.7 times the rate after the drift. Jobs, profile of the day, notices and
absences are the campus's.

An estimator is judged on the trace alone, and at its best: it knows the profile of the day and the week, and has to find
one number, by how much the hazard is what it was. Over a window that is emergencies seen over emergencies expected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from controller.numerics.arrays import Floats
from experiments.claims.paper_a import campus_result
from experiments.claims.paper_a.campus_result import DAY_S, lent_spells
from experiments.inputs.scenario import OwnerEvent, Owners, Scenario
from experiments.inputs.traces import Trace, paper_campus
from experiments.inputs.traces.streams import stream, unit_exponential
from experiments.inputs.traces.trace import in_order
from experiments.runtime.tasks import Result
from experiments.worlds.virtual import simulate

FACTOR = 1.7  # E8
TOLERANCE = 0.1  # of the estimate: "converged"
STEP_S = 360.0  # between two looks at an estimate
WINDOWS_H = (1.0, 6.0, 24.0, 72.0, 168.0, 336.0)
WATCHED_DAYS = 60.0  # after the drift, for estimators


@dataclass(frozen=True, slots=True)
class Drift:
    """A period as calibrated, then a period of more reclaims."""

    seed: int
    before_days: float
    after_days: float

    @property
    def at_s(self) -> float:
        """The moment at which the hazard jumps."""
        return self.before_days * DAY_S


def drifting(drift: Drift) -> tuple[Scenario, Trace]:
    """Return the campus and its trace; hosts begin as `paper_campus` has them."""
    scenario, trace = paper_campus(drift.seed, days=drift.before_days + drift.after_days)
    owners, events = scenario.owners, list[OwnerEvent]()
    for host in scenario.volunteers:
        rng = stream(drift.seed, "drift", host.name)
        lent_s = 0.0
        if host.name in trace.away:
            lent_s = owners.absence.quantile(rng.random()) * rng.random()
            events.append(OwnerEvent(lent_s, host.name, "return"))
        while (at_s := reclaimed_s(owners, lent_s, unit_exponential(rng), drift.at_s)) < scenario.duration_s:
            emergency, notice, absence = rng.random() < owners.emergency_share, rng.random(), rng.random()
            notice_s = 0.0 if emergency else owners.notice.quantile(notice)
            lent_s = at_s + notice_s + owners.absence.quantile(absence)
            events.append(OwnerEvent(at_s, host.name, "reclaim", notice_s))
            events.append(OwnerEvent(lent_s, host.name, "return"))
    return scenario, replace(
        trace, origin=f"drift, seed {drift.seed}", owner_events=in_order(events, scenario.duration_s)
    )


def reclaimed_s(owners: Owners, lent_s: float, exposure: float, drift_s: float) -> float:
    """Return the moment at which a host has collected the exposure, lent since `lent_s`.

    After the drift the rate is FACTOR times as high.
    """
    if lent_s < drift_s:
        collected = owners.exposure(lent_s, drift_s)
        if exposure <= collected:
            return owners.next_reclaim_s(lent_s, exposure)
        return owners.next_reclaim_s(drift_s, (exposure - collected) / FACTOR)
    return owners.next_reclaim_s(lent_s, exposure / FACTOR)


def play(system: str, drift: Drift) -> dict[str, Any]:
    """Return a run of one system."""
    scenario, trace = drifting(drift)
    return campus_result.compact(simulate(scenario, trace, drift.seed, system=system), trace)


def watch(seed: int) -> dict[str, Any]:
    """Return the hours after the drift until each window's estimate stays right, and the curves of the errors."""
    drift = Drift(seed, max(WINDOWS_H) / 24.0, WATCHED_DAYS)
    scenario, trace = drifting(drift)
    grid = np.arange(0.0, scenario.duration_s, STEP_S)
    owners = scenario.owners
    moments = [e.at_s for e in trace.owner_events if e.kind == "reclaim" and e.notice_s == 0.0]
    seen = np.searchsorted(np.array(moments), grid, side="right").astype(np.float64)
    step = np.array([owners.exposure(float(t), float(t) + STEP_S) for t in grid]) * owners.emergency_share
    lent = np.zeros(len(grid) + 1)
    for _, from_s, until_s in lent_spells(trace, [host.name for host in scenario.volunteers], scenario.duration_s):
        lent[min(len(grid), math.ceil(from_s / STEP_S))] += 1.0
        lent[min(len(grid), math.ceil(until_s / STEP_S))] -= 1.0
    expected = np.concatenate([[0.0], np.cumsum(np.cumsum(lent[:-1]) * step)])[:-1]
    hours: dict[str, float] = {}
    errors: dict[str, list[float]] = {}
    for window_h in WINDOWS_H:
        window, places = round(window_h * 3600.0 / STEP_S), np.arange(round(drift.at_s / STEP_S), len(seen))
        counted = seen[places] - seen[places - window]
        wanted = np.maximum(1e-12, expected[places] - expected[places - window])
        error = np.abs(counted / wanted / FACTOR - 1.0)
        hours[f"{window_h:g}"] = settled_h(error, window_h)
        errors[f"{window_h:g}"] = [round(value, 4) for value in error[:: round(DAY_S / STEP_S / 2)].tolist()]
    return {"hours": hours, "errors": errors}


def settled_h(error: Floats, window_h: float) -> float:
    """Return the first moment from which the error stays small for two windows; all that is watched, if there is none."""
    needed = max(1, round(2.0 * window_h * 3600.0 / STEP_S))
    bad = np.concatenate([[0], np.cumsum(error >= TOLERANCE)])
    good = np.flatnonzero(bad[needed:] - bad[:-needed] == 0)
    return float(good[0] * STEP_S / 3600.0) if len(good) else WATCHED_DAYS * 24.0


def losses_by_part(run: Result, drift: Drift) -> tuple[Floats, Floats]:
    """Return (minutes lost, interruptions) before and after the drift."""
    parts: list[list[float]] = [[0.0, 0.0], [0.0, 0.0]]
    for each in run["interruptions"]:
        part = parts[each[0] * 3600.0 >= drift.at_s]
        part[0] += (each[4] or 0.0) / 60.0
        part[1] += 1.0
    return np.array(parts[0]), np.array(parts[1])


def mean_error(results: Sequence[Result], window_h: float) -> Floats:
    """Return the mean error over the seeds, every half day."""
    errors: Floats = np.array([each["errors"][f"{window_h:g}"] for each in results])
    return errors
