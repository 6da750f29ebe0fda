"""Factors of the hazard by a host's state: against a plain replay, and where they must be 1, more or less."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.placement.hazard import (
    BELIEF,
    BURSTS,
    SOME,
    Experience,
    HazardWindow,
)
from controller.core.placement.hazard_states import (
    AGE,
    AWAY,
    DIFFER,
    NEAR,
    OCTAVES,
    SHARES,
    STATES,
    USED,
    WEEKDAY,
    StateFactors,
)
from controller.core.placement.joint_departures import Neighbourhood
from tests.hazard_of_one import estimate
from tests.hazard_of_one import profile as profile_of

DAY_S = 2880.0  # steps of 10 s, hours of 120 s
STEP_S, HOUR_S = 10.0, 120.0
PRIOR = Experience(1.0, DAY_S)
PLACES = {name: Neighbourhood("s", name[0]) for name in ("a1", "a2", "a3", "b1", "b2")}
HOSTS = (*PLACES, "stranger")
Event = tuple[float, str, str]
EDGES = {AGE: OCTAVES, NEAR: OCTAVES, AWAY: SHARES}


class Replay:
    """The same by dictionaries and loops, one step after the other."""

    def __init__(self, log: Sequence[Event], start_s: float, days: int, used: Sequence[int]) -> None:
        self.log, self.start_s, self.days, self.used = log, start_s, days, used

    def factors(self, now_s: float) -> dict[str, float]:
        base = HazardWindow(self.days * DAY_S, PRIOR, DAY_S, self.start_s)
        self.since: dict[str, float] = {}
        self.left: dict[str, float] = {}
        self.ever: set[str] = set()
        counted: list[tuple[int, int, int, float, float]] = []  # (day, state, bin, taken, expected)
        in_step: dict[int, int] = {}
        now_in: dict[str, list[int]] = {}
        level: dict[str, float] = {}
        profile: Sequence[float] = (1.0,) * 24
        found = [[1.0] * (1 + len(OCTAVES)) for _ in STATES]
        if not self.log:
            return dict.fromkeys(HOSTS, 1.0)
        step = math.floor((self.log[0][0] + self.start_s) / STEP_S)
        place, known = 0, list(PLACES)
        while True:
            at_s = step * STEP_S - self.start_s
            while place < len(self.log) and (self.log[place][0] < at_s or at_s > now_s):
                when_s, host, what = self.log[place]
                place += 1
                if host not in known:
                    known.append(host)
                lent = host in self.since
                if what == "lend":
                    base.lend(host, when_s)
                    self.since.setdefault(host, when_s)
                    self.ever.add(host)
                elif what == "withdraw" or lent:
                    (base.withdraw if what == "withdraw" else base.emergency)(host, when_s)
                    since_s = self.since.pop(host, math.inf)
                    if what == "depart":
                        self.left[self.house(host)] = when_s
                    if what == "depart" and since_s < at_s - STEP_S:
                        in_step[step - 1] = in_step.get(step - 1, 0) + 1
                        day = (step - 1) // 288
                        bins = now_in.get(host, [0] * len(STATES))
                        counted += [(day, state, bins[state], 1.0, 0.0) for state in range(len(STATES))]
            if at_s > now_s:
                break
            day = step // 288
            if step % 12 == 0 or not level:
                level = {host: estimate(base, at_s, host).mle for host in known}
                profile = profile_of(base, at_s)
                rows = [row for row in counted if row[0] >= day - self.days]
                steps = [n for number, n in in_step.items() if number // 288 >= day - self.days]
                found = self.estimated(rows, steps)
            now_in = {host: self.bins(host, at_s, day) for host in known}
            for host in self.since:
                amount = level.get(host, 0.0) * STEP_S * profile[step % 288 // 12]
                for state, number in enumerate(now_in[host]):
                    counted.append((day, state, number, 0.0, amount))
                    amount *= found[state][number]
            step += 1
        day = math.floor((now_s + self.start_s) / DAY_S)
        answer = {}
        for host in HOSTS:
            bins = self.bins(host, now_s, day)
            answer[host] = (
                math.prod(found[state][n] for state, n in enumerate(bins)) if host in known else 1.0
            )
        return answer

    def house(self, host: str) -> str:
        return PLACES[host].building if host in PLACES else host

    def bins(self, host: str, at_s: float, day: int) -> list[int]:
        house = self.house(host)
        ever = sum(self.house(other) == house for other in self.ever)
        lent = sum(self.house(other) == house for other in self.since)
        values = {
            AGE: (at_s - self.since.get(host, at_s)) / DAY_S,
            NEAR: (at_s - self.left.get(house, -math.inf)) / DAY_S,
            AWAY: 1.0 - lent / max(1, ever),
        }
        return [sum(values[state] >= edge for edge in EDGES[state]) for state in EDGES] + [day % 7]

    def estimated(
        self, rows: Sequence[tuple[int, int, int, float, float]], steps: Sequence[int]
    ) -> list[list[float]]:
        scattered = max(1.0, (sum(n * n for n in steps) + SOME * BURSTS) / (sum(steps) + SOME))
        found = []
        for state in range(len(STATES)):
            taken, expected = ([0.0] * (1 + len(OCTAVES)) for _ in range(2))
            for _, which, number, n, e in rows:
                if which == state:
                    taken[number] += n
                    expected[number] += e
            factors = [1.0] * len(taken)
            if state in self.used and sum(taken) > 0.0 and sum(expected) > 0.0:
                even = [e * sum(taken) / sum(expected) for e in expected]
                beyond = sum((n - e) ** 2 - scattered * e for n, e in zip(taken, even, strict=True))
                differ = (beyond + BELIEF * DIFFER) / (sum(e * e for e in even) + BELIEF)
                if differ > 0.0:
                    b = scattered / differ
                    factors = [(n + b) / (e + b) for n, e in zip(taken, even, strict=True)]
            found.append(factors)
        return found


events = st.lists(
    st.tuples(
        st.integers(0, 4 * 2880).map(lambda tenths: tenths + 0.5),  # never just when a step begins
        st.sampled_from(HOSTS[:-1]),
        st.sampled_from(["lend", "lend", "depart", "depart", "withdraw"]),
    ),
    min_size=1,
    max_size=60,
).map(lambda some: sorted(some, key=lambda event: event[0]))


@settings(max_examples=40, deadline=None)
@given(events, st.sampled_from([0.0, 700.0]), st.sampled_from([1, 3]), st.sampled_from([USED, range(4)]))
def test_factors_are_those_of_a_replay(
    log: list[Event], start_s: float, days: int, used: Sequence[int]
) -> None:
    factors = StateFactors(days * DAY_S, PRIOR, DAY_S, start_s, PLACES, tuple(used))
    for at_s, host, what in log:
        getattr(factors, what)(host, at_s)
        factors.column(HOSTS, at_s)  # a question changes nothing
    for now_s in (log[-1][0] + 0.25, log[-1][0] + 900.25):
        expected = Replay(log, start_s, days, used).factors(now_s)
        assert dict(zip(HOSTS, factors.column(HOSTS, now_s).tolist(), strict=True)) == pytest.approx(expected)


def lives(factors: StateFactors, days: int, rate_per_s: float, seed: int, hosts: Sequence[str]) -> float:
    """Owners without memory: the factors learn of them; when they are asked."""
    rng, todo = Random(seed), []
    for host in hosts:
        at_s = 0.0
        while at_s < days * DAY_S:
            end_s = at_s + rng.expovariate(rate_per_s)
            todo += [(at_s, host, "lend"), (end_s, host, "depart")]
            at_s = end_s + 30.0
    for at_s, host, what in sorted(todo):
        if at_s < days * DAY_S:
            getattr(factors, what)(host, at_s)
    return days * DAY_S


def test_owners_without_memory_have_factors_of_nearly_one() -> None:
    factors = StateFactors(100 * DAY_S, PRIOR, DAY_S, 0.0, PLACES)
    now_s = lives(factors, 40, 20.0 / DAY_S, 3, list(PLACES))
    assert factors.column(HOSTS, now_s) == pytest.approx(np.ones(len(HOSTS)), abs=0.15)


def test_hosts_that_always_leave_young_have_a_hazard_that_falls_with_age() -> None:
    factors = StateFactors(100 * DAY_S, PRIOR, DAY_S, 0.0, PLACES, (AGE,))
    rng = Random(1)
    for day in range(40):
        at_s = day * DAY_S + 1500.0 * rng.random()
        for _ in range(5):
            factors.lend("a1", at_s)
            factors.depart("a1", at_s + 15.0)
            at_s += 40.0
        factors.lend("a1", at_s)  # and then stay
        factors.withdraw("a1", at_s + 1000.0)
    now_s = 40 * DAY_S
    factors.lend("a1", now_s)
    young = factors.column(("a1",), now_s + 1.0)[0]
    old = factors.column(("a1",), now_s + 1000.0)[0]
    assert young > 3.0
    assert old < 0.3
    assert old < factors.column(("a1",), now_s + 1.0, 1500.0)[0] < young


def test_after_a_neighbour_left_the_others_of_the_building_are_in_danger_and_nobody_else() -> None:
    factors = StateFactors(100 * DAY_S, PRIOR, DAY_S, 0.0, PLACES, (NEAR,))
    rng = Random(1)
    for day in range(40):
        for host in PLACES:
            factors.lend(host, day * DAY_S)
        begin_s = day * DAY_S + 200.0 + 2000.0 * rng.random()
        for late, host in enumerate(("a1", "a2", "a3")):
            factors.depart(host, begin_s + 25.0 * late)
    now_s = 40 * DAY_S
    for host in PLACES:
        factors.lend(host, now_s)
    calm = factors.column(("a2", "b1"), now_s + 1000.0)
    factors.depart("a1", now_s + 1000.5)
    in_danger = factors.column(("a2", "b1"), now_s + 1015.0)
    assert in_danger[0] > 5.0 * calm[0]
    assert in_danger[1] <= calm[1]


@settings(max_examples=30, deadline=None)
@given(st.floats(1.0, 3.0 * DAY_S), st.floats(0.0, 2000.0))
def test_the_mean_ahead_is_that_of_the_moments_ahead(ahead_s: float, age_s: float) -> None:
    factors = StateFactors(100 * DAY_S, PRIOR, DAY_S, 0.0, PLACES, (AGE,))
    now_s = lives(factors, 10, 40.0 / DAY_S, 5, ["a1", "a2"]) + 1.0
    factors.depart("a1", now_s)
    factors.lend("a1", now_s)
    now_s += age_s
    mean = factors.column(("a1",), now_s, ahead_s)[0]
    ages = (age_s + (np.arange(20_000) + 0.5) / 20_000 * ahead_s) / DAY_S
    moments = factors._factors[AGE][np.searchsorted(OCTAVES, ages, side="right")]
    assert mean == pytest.approx(moments.mean(), rel=1e-2)


def test_far_ahead_what_neighbours_did_is_forgotten() -> None:
    factors = StateFactors(100 * DAY_S, PRIOR, DAY_S, 0.0, PLACES, (NEAR, AWAY))
    now_s = lives(factors, 20, 20.0 / DAY_S, 3, list(PLACES))
    near_now = factors.column(("a1",), now_s, 10.0)[0]
    assert abs(factors.column(("a1",), now_s, 50 * DAY_S)[0] - 1.0) < 0.02 * abs(near_now - 1.0) + 0.02


def test_weekdays_are_told_apart_when_they_differ() -> None:
    factors = StateFactors(1000 * DAY_S, PRIOR, DAY_S, 0.0, PLACES, (WEEKDAY,))
    for day in range(70):
        factors.lend("a1", day * DAY_S)
        if day % 7 == 2:
            for turn in range(8):
                factors.depart("a1", day * DAY_S + 200.0 * turn + 55.0)
                factors.lend("a1", day * DAY_S + 200.0 * turn + 56.0)
    assert factors.column(("a1",), 72.5 * DAY_S)[0] > 4.0
    assert factors.column(("a1",), 73.5 * DAY_S)[0] < 0.3
