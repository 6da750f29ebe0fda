"""Which estimate of an owner's hazard foretells the next day best.

Every midnight each estimator of `hazard.FORECASTS` says, from what was seen before, at what rate each host
will be taken back in each hour of the day that begins. Emergencies while a host is lent are a Poisson process, so what
then happens has the log-likelihood

    sum of log h(host, hour) over the day's emergencies  -  the integral of h over the time that hosts were lent,

and the better forecast has more of it: the score is proper, so that a forecast of the true rates is best on average, and
one that says too much or too little loses, also by being sure of an hour or a host that was seen too seldom. Given are the
differences to "one rate", in nats an emergency, over all held-out days together; intervals are 90 % of resampled days.
Drawn histories have a last row, the truth itself: more cannot be had.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from controller.core.network.links import Floats
from controller.core.placement.exposure import EMERGENCY, HOURS, LEND
from controller.core.placement.hazard import (
    DEFAULT,
    FORECASTS,
    Experience,
    Forecast,
    HazardWindow,
    Table,
)
from experiments.benchmarks.hazard_records import (
    DAY_S,
    HazardRecord,
    drawn,
    recorded,
)
from experiments.results.pictures import canvas

WINDOW_S = 14 * DAY_S  # the coordinator's default, as is the prior
PRIOR = Experience(1.0, DAY_S)
FIRST_DAYS = 2  # not held out: something has to be known
HOUR_S = DAY_S / HOURS
LEAST = 1e-12  # per second; a forecast of never does not lose for ever
LEAST_EMERGENCIES = 30  # in a record: fewer say nothing
RESAMPLES, BOUNDS = 2_000, (0.05, 0.95)
BASE, TRUTH = "one rate", "the truth"


def measure_hazard(out: Path, data: Path | None = None, *, quick: bool = False) -> dict[str, Any]:
    """Judge all estimators on drawn histories and on the records below `data`; write hazard.json and hazard.svg.

    SpecError: a file in `data` is no record.
    """
    result: dict[str, Any] = {"default": DEFAULT, "window_days": WINDOW_S / DAY_S, "records": {}}
    days = 14 if quick else 42
    found = [
        ("peaks, hosts differ", drawn(1, peaks=True, differ=True, days=days)),
        ("peaks, hosts alike", drawn(2, peaks=True, differ=False, days=days)),
        ("no peaks, hosts differ", drawn(3, peaks=False, differ=True, days=days)),
        ("no peaks, hosts alike", drawn(4, peaks=False, differ=False, days=days)),
    ]
    paths = sorted(p for p in data.rglob("*") if p.suffix in (".json", ".csv")) if data else []
    for name, record in found + [(f"{path.parent.name} {path.stem}", recorded(path)) for path in paths]:
        if record.emergencies >= LEAST_EMERGENCIES and record.days > FIRST_DAYS:
            result["records"][name] = _summary(record)
    result["total"] = {
        name: sum(r["forecasts"][name]["nats"] for r in result["records"].values()) for name in FORECASTS
    }
    result["best"] = max(result["total"], key=result["total"].__getitem__)
    out.mkdir(parents=True, exist_ok=True)
    (out / "hazard.json").write_text(json.dumps(result, indent=1) + "\n")
    draw(result, out / "hazard.svg")
    return result


def _summary(record: HazardRecord) -> dict[str, Any]:
    """Of each forecast: nats more than `BASE` over all held-out days, the same an emergency, and its interval."""
    forecasts = dict(FORECASTS)
    if record.truth is not None:
        forecasts[TRUTH] = true_rates(record)
    scores, emergencies = judge(record, forecasts)
    rng = np.random.default_rng(1)
    days = rng.integers(0, len(emergencies), (RESAMPLES, len(emergencies)))
    gains: dict[str, dict[str, float]] = {}
    for name, of in scores.items():
        nats = of - scores[BASE]
        each = nats[days].sum(axis=1) / np.maximum(1.0, emergencies[days].sum(axis=1))
        low, high = np.quantile(each, BOUNDS).tolist()
        total = float(nats.sum())
        gains[name] = {"nats": total, "each": total / float(emergencies.sum()), "low": low, "high": high}
    return {"emergencies": int(emergencies.sum()), "days": len(emergencies), "forecasts": gains}


def true_rates(record: HazardRecord) -> Forecast:
    """What no forecast can know: the hazard of emergencies that the history was drawn from."""
    assert record.truth is not None
    owners = record.truth

    def forecast(seen: HazardWindow, host: str, now_s: float) -> Table:
        law = owners[host]
        sudden = law.emergency_share * (1.0 - law.grace_share) / HOUR_S
        marks = [now_s + hour * HOUR_S for hour in range(HOURS + 1)]
        return [sudden * law.exposure(a, b) for a, b in pairwise(marks)]

    return forecast


def judge(record: HazardRecord, forecasts: Mapping[str, Forecast]) -> tuple[dict[str, Floats], Floats]:
    """(log-likelihood of each held-out day by each forecast, emergencies on each)."""
    seen, scores, counts = HazardWindow(WINDOW_S, PRIOR), {name: list[float]() for name in forecasts}, []
    lent: dict[str, float] = {}
    place = 0
    for day in range(record.days):
        began_s, ends_s = day * DAY_S, (day + 1) * DAY_S
        first = place
        while place < len(record.events) and record.events[place][0] < ends_s:
            place += 1
        today = _Day(began_s, record.events[first:place], lent)
        if day >= FIRST_DAYS:
            for name, forecast in forecasts.items():
                scores[name].append(today.likelihood(seen, forecast))
            counts.append(float(sum(today.taken.values())))
        _remember(seen, record.events[first:place])
    return {name: np.array(of) for name, of in scores.items()}, np.array(counts)


@dataclass
class _Day:
    """One day: when hosts were lent, hour by hour, and taken. `lent` (host -> since when) goes on to the next day."""

    began_s: float
    events: Sequence[tuple[float, str, int]]
    lent: dict[str, float]
    lent_s: dict[str, Floats] = field(default_factory=dict)
    taken: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for at_s, host, what in self.events:
            if what == EMERGENCY and host in self.lent:
                key = (host, int((at_s - self.began_s) // HOUR_S))
                self.taken[key] = self.taken.get(key, 0) + 1
            if what == LEND:
                self.lent.setdefault(host, at_s)
            elif host in self.lent:
                self._add(host, self.lent.pop(host), at_s)
        for host, since_s in self.lent.items():
            self._add(host, since_s, self.began_s + DAY_S)
            self.lent[host] = self.began_s + DAY_S

    def _add(self, host: str, from_s: float, until_s: float) -> None:
        marks = self.began_s + np.arange(HOURS + 1) * HOUR_S
        spent = np.diff(np.clip(marks, from_s, until_s))
        self.lent_s[host] = self.lent_s.get(host, np.zeros(HOURS)) + spent

    def likelihood(self, seen: HazardWindow, forecast: Forecast) -> float:
        """Of the day under what the forecast says at its beginning."""
        total = 0.0
        for host, lent_s in self.lent_s.items():
            rates = np.maximum(LEAST, forecast(seen, host, self.began_s))
            total -= float(rates @ lent_s)
            total += math.fsum(
                n * math.log(rates[hour]) for (taken, hour), n in self.taken.items() if taken == host
            )
        return total


def _remember(seen: HazardWindow, events: Sequence[tuple[float, str, int]]) -> None:
    for at_s, host, what in events:
        if what == EMERGENCY:
            seen.emergency(host, at_s)
        elif what == LEND:
            seen.lend(host, at_s)
        else:
            seen.withdraw(host, at_s)


COLOURS = ("#9a9a9a", "#2f6f9f", "#c0703a", "#3f8f4f", "#d0b000")


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Gains with their intervals, a row a history."""
    records = list(result["records"].items())
    names = [*result["total"], "the truth"]
    with canvas(path, 1, 1, (8.0, 1.4 + 0.45 * len(records))) as (_, [[axes]]):
        for order, (name, colour) in enumerate(zip(names, COLOURS, strict=True)):
            rows = [
                (y, of["forecasts"][name]) for y, (_, of) in enumerate(records) if name in of["forecasts"]
            ]
            shifted = [y + 0.15 * (order - 2) for y, _ in rows]
            axes.hlines(shifted, [g["low"] for _, g in rows], [g["high"] for _, g in rows], color=colour)
            axes.plot([g["each"] for _, g in rows], shifted, "o", color=colour, markersize=4, label=name)
        axes.set_yticks(
            range(len(records)), [f"{name}\n({of['emergencies']})" for name, of in records], fontsize=8
        )
        axes.invert_yaxis()
        axes.axvline(0.0, color="#bbbbbb", linewidth=0.8, zorder=0)
        axes.set_xlabel("log-likelihood of held-out days, nats an emergency more than one rate for all")
        axes.legend(fontsize=8)
