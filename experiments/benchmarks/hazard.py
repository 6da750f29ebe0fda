"""Which estimate of an owner's hazard foretells best, chosen on the first half of each history and judged on the second.

Every five minutes each estimator says, from what was seen before, at what rate each host that is lent will be taken back
until the next. Departures while a host is lent are a point process, so what then happens has the log-likelihood

    sum of log h(host, then) over the departures  -  the integral of h over the time that hosts were lent,

and the better forecast has more of it: the score is proper, so that a forecast of the true rates is best on average, and
one that says too much or too little loses, also by being sure of an hour, a host or a state that was seen too seldom. Given are
the differences to `PRESENT`, in nats a departure, over the days of the second half; intervals are 90 % of resampled days.
"Chosen" is the estimator that was best on the history's own first half. Drawn histories have one more, the truth itself: no
forecast is better on average.

The picture has the gains, and a calibration: a forecast's departures on second halves are cut into tenths by the rate
that was foretold; a good one has as many departures in each as it says.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from controller.core.placement.exposure import EMERGENCY, HOURS, LEND
from controller.core.placement.hazard import Experience, HazardWindow
from controller.core.placement.hazard_states import (
    AGE,
    AWAY,
    NEAR,
    STEPS,
    USED,
    WEEKDAY,
    StateFactors,
)
from controller.core.placement.joint_departures import Neighbourhood
from controller.numerics.arrays import Floats
from experiments.benchmarks.hazard_ahead import judge_ahead
from experiments.benchmarks.hazard_pairs import judge_pairs
from experiments.benchmarks.hazard_records import (
    DAY_S,
    Event,
    HazardRecord,
    bursts,
    drawn,
    recorded,
)
from experiments.benchmarks.results import write_result
from experiments.results.pictures import GOOD, MUTED, OURS, PEER, canvas, dress
from topologies.errors import SpecError

WINDOW_S = 14 * DAY_S  # the coordinator's default, as is the prior
PRIOR = Experience(1.0, DAY_S)
FIRST_DAYS = 2  # not judged: something has to be known
HOUR_S, STEP_S = DAY_S / HOURS, DAY_S / STEPS
LEAST = 1e-12  # per second; a forecast of never does not lose for ever
LEAST_DEPARTURES = 30  # in a history: fewer say nothing
RESAMPLES, BOUNDS = 2_000, (0.05, 0.95)
TENTHS = 10


@dataclass
class Past:
    """What every estimator has seen of one history."""

    places: Mapping[str, Neighbourhood]
    window: HazardWindow = field(default_factory=lambda: HazardWindow(WINDOW_S, PRIOR))
    states: dict[tuple[int, ...], StateFactors] = field(default_factory=dict)
    _asked: tuple[float, Sequence[str], tuple[Floats, tuple[float, ...]]] | None = None

    def __post_init__(self) -> None:
        kinds = [kinds for kinds in FORECASTS.values() if isinstance(kinds, tuple)]
        self.states = {k: StateFactors(WINDOW_S, PRIOR, places=self.places, states=k) for k in kinds}

    def levels(self, hosts: Sequence[str], now_s: float) -> tuple[Floats, tuple[float, ...]]:
        """(likeliest rate of each, profile): the same for all that ask at this moment, of the same hosts."""
        if self._asked is None or self._asked[0] != now_s or self._asked[1] is not hosts:
            self._asked = (now_s, hosts, self.window.likely_by_hour(hosts, now_s))
        return self._asked[2]

    def happened(self, event: Event) -> None:
        """An event of the history; an end that is no departure only ends the time lent."""
        at_s, host, what = event
        for states in self.states.values():
            tell = states.depart if what == EMERGENCY else states.lend if what == LEND else states.withdraw
            tell(host, at_s)
        window = self.window
        tell = window.emergency if what == EMERGENCY else window.lend if what == LEND else window.withdraw
        tell(host, at_s)


Forecast = Callable[[Past, Sequence[str], float], Floats]  # rates per second of these hosts from now on


def one_rate(past: Past, hosts: Sequence[str], now_s: float) -> Floats:
    """The campus's n/T for every host, at any hour."""
    return np.full(len(hosts), past.window.campus(now_s).rate_per_s)


def by_host(past: Past, hosts: Sequence[str], now_s: float) -> Floats:
    """The host's own level, with what it borrows from the others, at any hour."""
    return past.levels(hosts, now_s)[0]


def by_hour(past: Past, hosts: Sequence[str], now_s: float) -> Floats:
    """The campus's rate in each hour, for every host."""
    return one_rate(past, hosts, now_s) * past.levels(hosts, now_s)[1][hour(now_s)]


def by_host_and_hour(past: Past, hosts: Sequence[str], now_s: float) -> Floats:
    """The host's own level times the campus's profile."""
    levels, profile = past.levels(hosts, now_s)
    return levels * profile[hour(now_s)]


def hour(now_s: float) -> int:
    """Which 24th of the day it is; time 0 is a midnight."""
    return int(now_s % DAY_S // HOUR_S)


PRESENT, TRUTH, CHOSEN = "host and hour", "the truth", "chosen"
# a tuple is `by_host_and_hour` times the factors of these states
FORECASTS: dict[str, Forecast | tuple[int, ...]] = {
    "one rate": one_rate,
    "host": by_host,
    "hour": by_hour,
    PRESENT: by_host_and_hour,
    "+ weekday": (WEEKDAY,),
    "+ age": (AGE,),
    "+ near": (NEAR,),
    "+ away": (AWAY,),
    "+ age, near": (AGE, NEAR),
    "+ age, near, away": (AGE, NEAR, AWAY),
}
DEFAULT = next(name for name, kinds in FORECASTS.items() if kinds == USED)


def forecast_of(name: str) -> Forecast:
    """The forecast of that name."""
    made = FORECASTS[name]
    if not isinstance(made, tuple):
        return made
    kinds = made

    def with_factors(past: Past, hosts: Sequence[str], now_s: float) -> Floats:
        return by_host_and_hour(past, hosts, now_s) * past.states[kinds].column(hosts, now_s)

    return with_factors


def true_rates(record: HazardRecord) -> Forecast:
    """What no forecast can know: the hazard of emergencies that the history was drawn from."""
    assert record.truth is not None
    owners = record.truth

    def forecast(past: Past, hosts: Sequence[str], now_s: float) -> Floats:
        laws = [owners[host] for host in hosts]
        return np.array(
            [
                law.emergency_share * (1.0 - law.grace_share) * law.exposure(now_s, now_s + STEP_S) / STEP_S
                for law in laws
            ]
        )

    return forecast


@dataclass(frozen=True, slots=True)
class JudgedForecasts:
    """Rows: what a forecast said of one host in one step, for how long it was lent then, whether it was taken back."""

    steps: Floats
    lent_s: Floats
    taken: Floats
    rates: dict[str, Floats]

    def by_day(self, name: str) -> tuple[Floats, Floats]:
        """(log-likelihood, departures) of each day by that forecast, from the first day on."""
        rates = np.maximum(LEAST, self.rates[name])
        days = (self.steps // STEPS).astype(np.intp)
        nats = self.taken * np.log(rates) - rates * self.lent_s
        return np.bincount(days, nats).astype(float), np.bincount(days, self.taken).astype(float)

    def tenths(self, name: str, from_day: int) -> list[tuple[float, float, float]]:
        """(departures foretold, departures, hours lent) of each tenth of what that forecast foretold from that day on."""
        late = self.steps >= from_day * STEPS
        rates, lent_s, taken = self.rates[name][late], self.lent_s[late], self.taken[late]
        order = np.argsort(rates, kind="stable")
        foretold = np.cumsum((rates * lent_s)[order])
        ends = [0, *(bisect_left(foretold, foretold[-1] * (n + 1) / TENTHS) + 1 for n in range(TENTHS))]
        parts = [order[a:b] for a, b in pairwise(ends)]
        return [
            (float((rates * lent_s)[p].sum()), float(taken[p].sum()), float(lent_s[p].sum()) / HOUR_S)
            for p in parts
        ]


def judge(record: HazardRecord, forecasts: Mapping[str, Forecast]) -> JudgedForecasts:
    """What the forecasts said at the beginning of each step, but for the first days, and what happened in it."""
    past = Past(record.places)
    rows: list[tuple[Floats, Floats, Floats]] = []
    said: dict[str, list[Floats]] = {name: [] for name in forecasts}
    lent: set[str] = set()
    place = 0
    for step in range(record.days * STEPS):
        began_s, first = step * STEP_S, place
        while place < len(record.events) and record.events[place][0] < began_s + STEP_S:
            place += 1
        events = record.events[first:place]
        lent_s, taken = _lent(began_s, events, lent)
        if lent_s and step >= FIRST_DAYS * STEPS:
            hosts = list(lent_s)
            for name, forecast in forecasts.items():
                said[name].append(forecast(past, hosts, began_s))
            counts = np.array([float(taken.get(host, 0)) for host in hosts])
            rows.append((np.full(len(hosts), float(step)), np.array(list(lent_s.values())), counts))
        for event in events:
            past.happened(event)
    steps, times, counts = (np.concatenate(column) for column in zip(*rows, strict=True))
    return JudgedForecasts(steps, times, counts, {name: np.concatenate(of) for name, of in said.items()})


def _lent(began_s: float, events: Sequence[Event], lent: set[str]) -> tuple[dict[str, float], dict[str, int]]:
    """(host -> how long it was lent in a step, host -> how often it was taken back then); `lent` goes on to the next step."""
    since = dict.fromkeys(sorted(lent), began_s)
    lent_s: dict[str, float] = dict.fromkeys(since, 0.0)
    taken: dict[str, int] = {}
    for at_s, host, what in events:
        if what == LEND:
            since.setdefault(host, at_s)
        elif host in since:
            lent_s[host] = lent_s.get(host, 0.0) + at_s - since.pop(host)
            if what == EMERGENCY:
                taken[host] = taken.get(host, 0) + 1
    for host, since_s in since.items():
        lent_s[host] = lent_s.get(host, 0.0) + began_s + STEP_S - since_s
    lent.clear()
    lent.update(since)
    return lent_s, taken


def measure_hazard(
    out: Path, data: Path | None = None, *, seed: int = 1, quick: bool = False
) -> dict[str, Any]:
    """Judge all estimators on drawn histories and on the records below `data`; write hazard.json and hazard.svg.

    SpecError: there is no record below `data`, or a file there is none.
    """
    days = 8 if quick else 42
    paths = sorted(p for p in data.rglob("*") if p.suffix in (".json", ".csv")) if data else []
    if data is not None and not paths:
        raise SpecError("--data", str(data), "a folder with records of offers (.json or .csv)")
    names = [f"{path.parent.name} {path.stem}" for path in paths]
    read = [(name, recorded(path)) for name, path in zip(names, paths, strict=True)]
    found = [
        ("peaks, hosts differ", drawn(seed, peaks=True, differ=True, days=days)),
        ("peaks, hosts alike", drawn(seed + 1, peaks=True, differ=False, days=days)),
        ("no peaks, hosts differ", drawn(seed + 2, peaks=False, differ=True, days=days)),
        ("no peaks, hosts alike", drawn(seed + 3, peaks=False, differ=False, days=days)),
        ("paper's campus", bursts(seed, in_building=False, days=2 * days)),
        ("bursts in buildings", bursts(seed + 1, in_building=True, days=2 * days)),
    ]
    found += read
    records: dict[str, Any] = {}
    for name, record in found:
        if record.departures >= LEAST_DEPARTURES and record.days > 2 * FIRST_DAYS:
            pairs, ahead = (of(record, WINDOW_S, PRIOR) for of in (judge_pairs, judge_ahead))
            judged = {"recorded": name in names, "pairs": pairs, "ahead": ahead}
            records[name] = _summary(record) | judged
    result: dict[str, Any] = {
        "default": DEFAULT,
        "present": PRESENT,
        "window_days": WINDOW_S / DAY_S,
        "records": records,
    }
    for half in ("first", "second"):
        result[half] = {name: sum(r[half][name]["nats"] for r in records.values()) for name in FORECASTS}
    result["best"] = max(result["first"], key=result["first"].__getitem__)
    write_result(out / "hazard.json", result)
    draw(result, out / "hazard.svg")
    return result


def _summary(record: HazardRecord) -> dict[str, Any]:
    """For each forecast and half: nats more than `PRESENT`, the same a departure with its interval; what the first half chose;
    and the calibration of `PRESENT` and `DEFAULT` on the second."""
    forecasts = {name: forecast_of(name) for name in FORECASTS}
    if record.truth is not None:
        forecasts[TRUTH] = true_rates(record)
    judged, middle = judge(record, forecasts), max(FIRST_DAYS + 1, record.days // 2)
    present, taken = judged.by_day(PRESENT)
    rng = np.random.default_rng(1)
    summary: dict[str, Any] = {"days": record.days}
    for half, days in (("first", slice(FIRST_DAYS, middle)), ("second", slice(middle, record.days))):
        counts = taken[days]
        resampled = rng.integers(0, len(counts), (RESAMPLES, len(counts)))
        summary[half] = {"departures": int(counts.sum())}
        for name in forecasts:
            nats = (judged.by_day(name)[0] - present)[days]
            each = nats[resampled].sum(axis=1) / np.maximum(1.0, counts[resampled].sum(axis=1))
            low, high = np.quantile(each, BOUNDS).tolist()
            total = float(nats.sum())
            each_of = total / max(1.0, float(counts.sum()))
            summary[half][name] = {"nats": total, "each": each_of, "low": low, "high": high}
    first = {name: summary["first"][name]["nats"] for name in FORECASTS}
    summary[CHOSEN] = max(first, key=first.__getitem__)
    summary["tenths"] = {name: judged.tenths(name, middle) for name in (PRESENT, DEFAULT)}
    return summary


COLOURS = {PRESENT: MUTED, DEFAULT: PEER, CHOSEN: OURS, TRUTH: GOOD}


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Gains on second halves with their intervals, a row a history; and the calibration of the present and the default."""
    records = list(result["records"].items())
    with canvas(path, 1, 2, (13.0, 1.6 + 0.42 * len(records))) as (_, [[gains, tenths]]):
        for order, name in enumerate((DEFAULT, CHOSEN, TRUTH)):
            rows = [
                (y, of["second"].get(of[CHOSEN] if name == CHOSEN else name))
                for y, (_, of) in enumerate(records)
            ]
            shown = [(y + 0.2 * (order - 1), gain) for y, gain in rows if gain is not None]
            colour, at = COLOURS[name], [y for y, _ in shown]
            gains.hlines(at, [g["low"] for _, g in shown], [g["high"] for _, g in shown], color=colour)
            label = {CHOSEN: "chosen on the first half"}.get(name, name)
            gains.plot([g["each"] for _, g in shown], at, "o", color=colour, markersize=4, label=label)
        labels = [f"{name}\n({of['second']['departures']})" for name, of in records]
        gains.set_yticks(range(len(records)), labels, fontsize=8)
        gains.invert_yaxis()
        gains.axvline(0.0, color=MUTED, linewidth=0.8, zorder=0)
        dress(gains, f"second half: nats a departure more than '{PRESENT}'", "", "Log-likelihood", grid="x")
        gains.legend()
        for name in (PRESENT, DEFAULT):
            for is_recorded, marker in ((True, "o"), (False, "x")):
                of_kind = [of["tenths"][name] for _, of in records if of["recorded"] is is_recorded]
                if of_kind:
                    sums = np.array(of_kind).sum(axis=0)
                    label = f"{name}, {'recorded' if is_recorded else 'drawn'}"
                    hours = np.maximum(sums[:, 2], 1e-9)
                    tenths.plot(
                        sums[:, 0] / hours,
                        np.maximum(sums[:, 1], 0.5) / hours,
                        marker,
                        color=COLOURS[name],
                        markersize=5,
                        label=label,
                    )
        tenths.axline((0.01, 0.01), (0.1, 0.1), color=MUTED, linewidth=0.8, zorder=0)
        tenths.set_xscale("log")
        tenths.set_yscale("log")
        dress(
            tenths, "departures foretold, per hour lent", "departures, per hour lent", "Calibration by tenths"
        )
        tenths.legend()
