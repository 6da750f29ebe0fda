"""Paper A's campus: exact counts, laws within stated tolerances over several seeds, at every length of run."""

import math
import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise, takewhile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.claims.paper_a.campus_moments import window_hazards, windows_left
from experiments.claims.paper_a.campus_result import lent_spells
from experiments.claims.policy_comparison.owner_records import lent_share
from experiments.inputs.scenario import OwnerEvent, Scenario, load
from experiments.inputs.scenario.owners import HOUR_S
from experiments.inputs.traces import Trace, generate, paper_campus
from experiments.inputs.traces.exact_counts import APART_S, BURST_S
from experiments.inputs.traces.paper_campus import DAY_S, paper_scenario
from experiments.inputs.traces.streams import host_factor
from experiments.results.statistics import interval
from experiments.theory.paper_a.theorems import adaptivity_gap
from topologies.errors import SpecError

SEEDS = range(1, 7)


@cache
def full(seed: int) -> tuple[Scenario, Trace]:
    return paper_campus(seed)


def simultaneous(reclaims: Sequence[OwnerEvent], within_s: float = 60.0) -> int:
    """Return the most reclaims within a minute."""
    times = [event.at_s for event in reclaims]
    return max(n + 1 - bisect_left(times, at_s - within_s) for n, at_s in enumerate(times))


@cache
def statistics_of(seed: int) -> dict[str, float]:
    scenario, trace = full(seed)
    owners, end_s = scenario.owners, scenario.duration_s
    reclaims = [event for event in trace.owner_events if event.kind == "reclaim"]
    sizes = sorted(arrival.job.payload_bytes / 1e9 for arrival in trace.arrivals)
    # by the hazard over that of a night: for how long it holds, and how often it has struck
    lasts_s: dict[float, float] = defaultdict(float)
    for start_s, until_s, hazard in takewhile(lambda part: part[0] < end_s, owners.segments(0.0)):
        lasts_s[round(hazard / owners.hazard_per_s, 6)] += min(until_s, end_s) - start_s
    struck = Counter(round(next(owners.segments(event.at_s))[2] / owners.hazard_per_s, 6) for event in reclaims)
    hazards, (local, core) = window_hazards(scenario), windows_left(scenario, trace.background)
    effective = (local + core) / 2.0
    inverse = 1.0 / effective
    gap = adaptivity_gap(hazards.tolist(), effective.tolist(), 1.0).ratio - 1.0
    return {
        "jobs": len(trace.arrivals),
        "GPU time of all jobs": sum(arrival.job.run_s for arrival in trace.arrivals) / HOUR_S,
        "reclaims": len(reclaims),
        "emergencies": trace.emergencies,
        "emergencies of all reclaims": 100.0 * trace.emergencies / len(reclaims),
        "hazard, highest to lowest": struck[6.0] / lasts_s[6.0] / (struck[1.0] / lasts_s[1.0]),
        "reclaims in the two peaks": 100.0 * struck[6.0] / len(reclaims),
        "most reclaims within a minute": simultaneous(reclaims),
        "hosts lent, on average": 100.0 * lent_share(scenario, trace),
        "smallest payload": sizes[0],
        "median payload": statistics.median(sizes),
        "largest payload": sizes[-1],
        "B_local, mean": local.mean(),
        "B_core, mean": core.mean(),
        "B_eff, mean": effective.mean(),
        "least of B_core, below its mean": 100.0 * (1.0 - core.min() / core.mean()),
        "most of B_core, above its mean": 100.0 * (core.max() / core.mean() - 1.0),
        "correlation of hazard and B_eff": np.corrcoef(hazards, effective)[0, 1],
        "variation of 1 / B_eff, CV": inverse.std() / inverse.mean(),
        "adaptivity gap predicted from both": 100.0 * gap,
    }


def mean_of(name: str) -> float:
    return statistics.fmean(statistics_of(seed)[name] for seed in SEEDS)


# An interval that lies within this part of the paper's figure agrees with it.
TOLERANCE = 0.15

# Not among them: the smallest payload, 0.12 GB, and the gap, 5.2 %, in which the generator differs as tests below state.
PUBLISHED = {
    "jobs": 312,
    "GPU time of all jobs": 4890,
    "reclaims": 847,
    "emergencies": 358,
    "emergencies of all reclaims": 42,  # F1
    "hazard, highest to lowest": 6,
    "most reclaims within a minute": 7,  # section IV-B
    "median payload": 3.2,  # F2
    "largest payload": 48,
    "B_local, mean": 820,  # F3
    "B_core, mean": 240,
    "B_eff, mean": 530,
    "least of B_core, below its mean": 60,
    "most of B_core, above its mean": 60,
    "correlation of hazard and B_eff": -0.43,  # F4
    "variation of 1 / B_eff, CV": 0.31,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_traces_have_the_statistic_that_figure_2_publishes(name: str) -> None:
    paper, found = PUBLISHED[name], interval([statistics_of(seed)[name] for seed in SEEDS])
    assert [found.low, found.high] == pytest.approx([paper, paper], rel=TOLERANCE)


# closer than the paper's figure is known: (value, how far a seed's, and how far the mean of all seeds, may be from it)
CLOSER = {
    "median payload": (3.2, 0.096, 0.096),
    "hosts lent, on average": (50.0, 6.0, 6.0),
    "B_local, mean": (820.0, 4.1, 4.1),
    "B_core, mean": (240.0, 1.2, 1.2),
    "least of B_core, below its mean": (60.0, 3.0, 3.0),
    "most of B_core, above its mean": (60.0, 3.0, 3.0),
    "correlation of hazard and B_eff": (-0.43, 0.1, 0.04),  # the paper's own interval is [-.51, -.34]
    "variation of 1 / B_eff, CV": (0.31, 1.0, 0.02),
    "hazard, highest to lowest": (6.0, 9.0, 0.9),
    "adaptivity gap predicted from both": (3.1, 9.0, 0.155),  # the paper predicts 5.2 %; claim A-gap compares the two
}


@pytest.mark.parametrize("name", CLOSER)
def test_statistics_of_each_seed_and_of_all_are_as_the_laws_say(name: str) -> None:
    value, of_each, of_all = CLOSER[name]
    assert [statistics_of(seed)[name] for seed in SEEDS] == [pytest.approx(value, abs=of_each)] * len(SEEDS)
    assert mean_of(name) == pytest.approx(value, abs=of_all)


def test_the_smallest_and_the_largest_payload_are_those_of_the_law() -> None:
    """A run draws one payload from each of 312 equal parts of the law, which begins at the paper's 0.12 GB."""
    payload = full(1)[0].jobs.payload
    assert (payload.minimum, payload.maximum) == (0.12e9, 48e9)
    for found in map(statistics_of, SEEDS):
        least, most = found["smallest payload"], found["largest payload"]
        assert payload.minimum <= least * 1e9 <= payload.quantile(1 / 312)
        assert payload.quantile(311 / 312) <= most * 1e9 <= payload.maximum


# ---------------------------------------------------------------- what is exact
@pytest.mark.parametrize("seed", SEEDS)
def test_two_months_have_the_papers_counts_exactly(seed: int) -> None:
    _, trace = full(seed)
    assert len(trace.away) == 26
    reclaims = [event for event in trace.owner_events if event.kind == "reclaim"]
    assert (len(trace.arrivals), len(reclaims), trace.emergencies) == (312, 847, 358)
    assert sum(a.job.run_s for a in trace.arrivals) / HOUR_S == pytest.approx(4890.0, rel=1e-3)
    assert all(event.notice_s >= 10.0 for event in reclaims if event.notice_s)


@given(st.floats(0.1, 20.0), st.integers(0, 10**9))
def test_a_shorter_run_has_the_same_rates(days: float, seed: int) -> None:
    scenario, trace = paper_campus(seed, days=days)
    reclaims = [event for event in trace.owner_events if event.kind == "reclaim"]
    assert len(trace.arrivals) == max(1, round(312 * days / 61))
    assert len(reclaims) == max(1, round(847 * days / 61))
    assert trace.emergencies == round(358 / 847 * len(reclaims))
    assert all(event.at_s < scenario.duration_s for event in trace.owner_events)
    work_h = sum(a.job.run_s for a in trace.arrivals) / HOUR_S
    assert work_h == pytest.approx(4890.0 / 312 * len(trace.arrivals), rel=0.01)


def test_the_numbers_that_follow_from_the_papers_are_in_the_example() -> None:
    """Little's law gives the absences of a campus of which half is lent; the hazard and the jobs' mean length follow, too."""
    owners, jobs = load("example:paper-campus").owners, load("example:paper-campus").jobs
    span_s, lent, gpus = 61 * DAY_S, owners.lent_at_start, 53
    away_s = (1.0 - lent) * gpus * span_s / 847
    assert owners.absence.typical == pytest.approx(away_s / math.exp(0.5), rel=1e-12)
    of_night = owners.hazard_per_s / (owners.exposure(0.0, 7 * DAY_S) / (7 * DAY_S))
    assert owners.hazard_per_s == pytest.approx(847 / (lent * gpus * span_s) * of_night, rel=1e-12)
    assert owners.emergency_share == 358 / 847
    assert jobs.run_time.typical == pytest.approx(0.6 * 4890 * HOUR_S / 312, rel=1e-12)
    assert jobs.interarrival.typical == pytest.approx(span_s / 312, rel=1e-12)
    assert load("example:paper-campus") == full(1)[0]


# ---------------------------------------------------------------- laws of owners and payloads
def test_the_hazard_has_the_papers_variation_and_six_to_one() -> None:
    hazards = window_hazards(paper_scenario(1))
    assert statistics.pstdev(hazards) / statistics.fmean(hazards) == pytest.approx(0.62, abs=0.01)
    assert max(hazards) / min(hazards) == pytest.approx(6.0)


def test_reclaims_come_as_often_in_peaks_as_the_hazard_says() -> None:
    owners, end_s = full(1)[0].owners, 61 * DAY_S
    parts = takewhile(lambda part: part[0] < end_s, owners.segments(0.0))
    law = math.fsum(
        (until_s - start_s) * hazard for start_s, until_s, hazard in parts if hazard == 6.0 * owners.hazard_per_s
    )
    # of 5 082 reclaims, 20 % in bursts
    assert mean_of("reclaims in the two peaks") == pytest.approx(100.0 * law / owners.exposure(0.0, end_s), abs=2.5)


@pytest.mark.parametrize("seed", SEEDS)
def test_at_most_seven_are_reclaimed_together_and_seven_once(seed: int) -> None:
    reclaims = [event for event in full(seed)[1].owner_events if event.kind == "reclaim"]
    assert simultaneous(reclaims) == 7
    gaps = [b.at_s - a.at_s for a, b in pairwise(reclaims)]
    in_bursts = sum(gap <= BURST_S for gap in gaps)
    assert 40 <= in_bursts <= 110  # .12 of 847 in bursts of 2 to 7
    assert APART_S > BURST_S


def test_bursts_may_keep_to_one_building() -> None:
    scenario = paper_scenario(1, days=20.0)
    buildings = {host.name: host.building for host in scenario.volunteers}
    for in_building in (True, False):
        owners = replace(scenario.owners, burst_in_building=in_building, burst_share=0.5, burst=3)
        trace = generate(replace(scenario, owners=owners))
        reclaims = [event for event in trace.owner_events if event.kind == "reclaim"]
        pairs = [(a, b) for a, b in pairwise(reclaims) if b.at_s - a.at_s <= BURST_S]
        alike = sum(buildings[a.host] == buildings[b.host] for a, b in pairs) / len(pairs)
        assert alike > 0.9 if in_building else alike < 0.5


@given(st.floats(0.0, 40 * DAY_S), st.floats(0.0, 300.0))
def test_exposure_is_collected_by_the_next_reclaim_over_weekends_too(lent_s: float, exposure: float) -> None:
    owners = replace(paper_scenario(1).owners, hazard_per_s=1e-4)
    at_s = owners.next_reclaim_s(lent_s, exposure)
    assert owners.exposure(lent_s, at_s) == pytest.approx(exposure, rel=1e-6, abs=1e-6)


def test_host_away_at_the_start_returns_before_it_is_reclaimed() -> None:
    _, trace = full(2)
    first: dict[str, str] = {}
    for event in trace.owner_events:
        first.setdefault(event.host, event.kind)
    assert {host for host, kind in first.items() if kind == "return"} <= set(trace.away)
    assert all(first.get(host, "return") == "return" for host in trace.away)
    with pytest.raises(SpecError, match="begin lent"):
        Trace("x", trace.arrivals, trace.owner_events)


# ---------------------------------------------------------------- bandwidth
@pytest.mark.parametrize("counted", [True, False])
def test_owners_differ_as_much_as_their_factors_say(counted: bool) -> None:
    """Reclaims over lent time, of the third of hosts with the least factors and of the third with the greatest."""
    scenario = paper_scenario(4, days=60.0)
    owners = replace(scenario.owners, host_sigma=1.0, burst_share=0.0)
    owners = owners if counted else replace(owners, count=None)
    scenario = replace(scenario, owners=owners)
    trace = generate(scenario)
    lent_s, reclaims = dict.fromkeys((host.name for host in scenario.volunteers), 0.0), Counter[str]()
    for host, from_s, until_s in lent_spells(trace, lent_s, scenario.duration_s):
        lent_s[host] += until_s - from_s
    reclaims.update(event.host for event in trace.owner_events if event.kind == "reclaim")
    factors = {host: host_factor(owners, host, scenario.seed) for host in lent_s}
    ordered, third = sorted(lent_s, key=factors.__getitem__), len(lent_s) // 3

    def rates(hosts: list[str]) -> tuple[float, float]:
        seen = sum(reclaims[host] for host in hosts) / sum(lent_s[host] for host in hosts)
        weighed = sum(factors[host] * lent_s[host] for host in hosts) / sum(lent_s[host] for host in hosts)
        return seen, weighed

    (few, low), (many, high) = rates(ordered[:third]), rates(ordered[-third:])
    assert high / low > 4.0
    assert many / few == pytest.approx(high / low, rel=0.35)
    if counted:
        assert reclaims.total() == owners.count
