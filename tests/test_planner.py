"""P1 in closed form: held to scipy's solver of the joint program, and to what loss budgets and links need."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy.optimize import minimize

from controller.core.checkpointing import planner as p1
from controller.core.checkpointing.planner import CheckpointPlans, Planner, plan_alike, plan_each
from controller.numerics.arrays import Floats
from tests import checkpoint_jobs
from tests.checkpoint_jobs import HOUR_S, TRUNK, Job, job
from topologies.spec import DirectedLink

BETA = 0.9
PAUSE_S = 0.5


def plan(
    jobs: list[Job], capacity: dict[DirectedLink, float], planner: Planner = plan_each, pause_s: float = PAUSE_S
) -> CheckpointPlans:
    return checkpoint_jobs.plan(planner, jobs, capacity, BETA, pause_s)


def lost(jobs: list[Job], rates: Floats, intervals_s: Floats) -> float:
    """lambda (D/2 + C/b) + p/D, over all jobs."""
    payload, hazard = (np.array([getattr(j, a) for j in jobs]) for a in ("payload_bytes", "hazard_per_s"))
    return float((hazard * (intervals_s / 2.0 + payload / rates) + PAUSE_S / intervals_s).sum())


@pytest.mark.parametrize("switches", [2, 4])
@pytest.mark.parametrize("seed", range(8))
def test_no_solver_finds_much_less(switches: int, seed: int) -> None:
    """On one link, and on chains of them: over rates *and* intervals, from the plan and from below it."""
    rng = default_rng(1000 * switches + seed)
    links = [DirectedLink(f"s{i}", f"s{i + 1}") for i in range(switches - 1)]
    routes = [tuple(links[a:b]) for a, b in itertools.combinations(range(switches), 2)]
    capacity = {link: 10.0 ** rng.uniform(7, 8.5) for link in links}
    jobs = [
        job(f"j{i}", 10.0 ** rng.uniform(8, 10), 10.0 ** rng.uniform(-2, 1), links=routes[rng.integers(len(routes))])
        for i in range(int(rng.integers(2, 8)))
    ]
    found, n = plan(jobs, capacity), len(jobs)
    payload = np.array([j.payload_bytes for j in jobs])
    crosses = np.array([[link in j.links for j in jobs] for link in capacity], dtype=float)

    def split(x: Floats) -> tuple[Floats, Floats]:
        return np.exp(x[:n]) * found.rates_bytes_per_s, np.exp(x[n:]) * found.intervals_s

    def slack(x: Floats) -> Floats:
        rates, intervals_s = split(x)
        room = 1.0 - crosses @ rates / np.array(list(capacity.values()))
        return np.concatenate((room, np.log(intervals_s * rates * BETA / payload)))

    starts = [np.concatenate((np.full(n, shift), np.zeros(n))) for shift in (0.0, -0.3)]
    constraints = {"type": "ineq", "fun": slack}
    answers = [
        minimize(
            lambda x: lost(jobs, *split(x)),
            start,
            constraints=constraints,
            method="SLSQP",
            options={"maxiter": 2000, "ftol": 1e-14},
        )
        for start in starts
    ]
    least = min((a.fun for a in answers if slack(a.x).min() > -1e-8), default=math.inf)
    mine = lost(jobs, found.rates_bytes_per_s, found.intervals_s)
    assert least * (1 - 1e-6) <= mine <= 1.02 * least


def test_intervals_are_the_best_ones_clipped_by_the_budget_and_then_by_the_link() -> None:
    jobs = [
        job("calm", per_h=0.01),
        job("hasty", payload=80e9, per_h=5.0),
        job("promised", per_h=0.01, loss_budget_s=200.0),
    ]
    found = plan(jobs, {TRUNK: 1e9})
    best_s, floor_s = math.sqrt(2 * PAUSE_S * HOUR_S / 0.01), 80e9 / (BETA * found.rates_bytes_per_s[1])
    assert found.intervals_s == pytest.approx([best_s, floor_s, 400.0])
    assert math.sqrt(2 * PAUSE_S * HOUR_S / 5.0) < floor_s and best_s > 400.0


def test_jobs_taken_for_alike_have_one_interval() -> None:
    """By the means of hazards and pauses, under the tightest budget."""
    jobs = [job("a", per_h=1.0), job("b", per_h=3.0)]
    best_s = math.sqrt(2 * PAUSE_S * HOUR_S / 2.0)
    assert plan(jobs, {TRUNK: 1e15}, plan_alike).intervals_s == pytest.approx([best_s, best_s])
    tight = [jobs[0], job("b", per_h=3.0, loss_budget_s=best_s / 4.0)]
    assert plan(tight, {TRUNK: 1e15}, plan_alike).intervals_s == pytest.approx([best_s / 2.0, best_s / 2.0])


def test_budgets_bind_on_the_links_where_all_of_them_fit_and_only_there() -> None:
    full, roomy = DirectedLink("full", "core"), DirectedLink("roomy", "core")
    jobs = [
        job(f"{link.source}{n}", per_h=per_h, loss_budget_s=100.0, links=(link,))
        for link in (full, roomy)
        for n, per_h in (("a", 0.01), ("b", 0.01), ("c", 0.04))
    ]
    found = plan(jobs, {full: 16e6, roomy: 17e6})  # each budget needs 5.6 MB/s
    assert found.infeasible.tolist() == [True, True, False, False, False, False]
    assert found.rates_bytes_per_s[:3] == pytest.approx([4e6, 4e6, 8e6])  # by need, at no budget's expense


def test_no_split_of_a_link_loses_much_less_work_than_one_that_breaks_both_budgets() -> None:
    jobs = [
        job("a", 10.279e9, 3600 * 3.182e-6, loss_budget_s=300.0),
        job("b", 12.611e9, 3600 * 4.594e-6, loss_budget_s=1200.0),
    ]
    found, room = plan(jobs, {TRUNK: 18e6}, pause_s=8.0), 18e6
    assert found.infeasible.tolist() == [True, False]

    def work(rates: Floats) -> float:
        payload, hazard = (np.array([getattr(j, a) for j in jobs]) for a in ("payload_bytes", "hazard_per_s"))
        longest_s = np.minimum(np.sqrt(2 * 8.0 / hazard), [600.0, 2400.0])
        return float((hazard * (np.maximum(longest_s, payload / rates / BETA) / 2 + payload / rates)).sum())

    least = min(work(np.array([room * part, room - room * part])) for part in np.linspace(0.01, 0.99, 99))
    assert work(found.rates_bytes_per_s) < 1.01 * least


Shape = tuple[float, float, float, int]  # logarithms of payload, hazard and budget; links, a bit each
shapes_of_jobs = st.lists(
    st.tuples(
        st.floats(7, 11),
        st.one_of(st.just(-math.inf), st.floats(-3, 2)),
        st.one_of(st.just(math.inf), st.floats(0, 6)),
        st.integers(1, 15),
    ),
    max_size=9,
)
capacities = st.lists(st.one_of(st.just(0.0), st.floats(1e5, 1e10)), min_size=4, max_size=4)
LINKS = [DirectedLink(f"a{i}", f"b{i}") for i in range(4)]


@given(shapes_of_jobs, capacities, st.randoms(use_true_random=False))
def test_rates_fit_budgets_are_kept_or_flagged_and_the_order_of_jobs_has_no_say(
    shapes: list[Shape], rooms: list[float], rng: Any
) -> None:
    jobs = [
        job(
            f"j{i}",
            10.0**c,
            10.0**h,
            loss_budget_s=10.0**b,
            links=tuple(x for n, x in enumerate(LINKS) if bits >> n & 1),
        )
        for i, (c, h, b, bits) in enumerate(shapes)
    ]
    capacity = dict(zip(LINKS, rooms, strict=True))
    found = plan(jobs, capacity)
    rates = dict(zip(jobs, found.rates_bytes_per_s.tolist(), strict=True))
    for link, room in capacity.items():
        assert sum(rate for j, rate in rates.items() if link in j.links) <= room * (1 + 1e-8)
    for j, interval_s, infeasible in zip(jobs, found.intervals_s, found.infeasible, strict=True):
        needed = j.payload_bytes / (2.0 * BETA * j.loss_budget_s)
        assert infeasible == (rates[j] < needed * (1 - 1e-9))
        best_s = math.sqrt(2.0 * PAUSE_S / j.hazard_per_s) if j.hazard_per_s else math.inf
        floor_s = j.payload_bytes / rates[j] / BETA if rates[j] else math.inf
        assert interval_s == pytest.approx(max(floor_s, min(best_s, 2.0 * j.loss_budget_s)))
    rng.shuffle(jobs)
    again = plan(jobs, capacity).rates_bytes_per_s.tolist()
    assert again == pytest.approx([rates[j] for j in jobs], rel=1e-6)


def test_no_jobs_have_an_empty_plan() -> None:
    for planner in (plan_each, plan_alike):
        assert not len(plan([], {TRUNK: 1.0}, planner).rates_bytes_per_s)


def test_a_calm_job_with_a_loss_budget_gets_what_the_budget_needs_and_one_without_gets_nothing() -> None:
    jobs = [job("calm", per_h=0.0, loss_budget_s=1000.0), job("idle", per_h=0.0), job("busy", per_h=50.0)]
    found = plan(jobs, {TRUNK: 1e8})
    assert found.rates_bytes_per_s[:2] == pytest.approx([1e9 / (2 * BETA * 1000.0), 0.0])
    assert found.intervals_s[:2] == pytest.approx([2000.0, math.inf])


# ---------------------------------------------------------------- the paper's planners
def test_the_cube_root_of_hazard_times_payload_divides_the_budget() -> None:
    jobs = [job("small"), job("large", payload=8e9)]
    found = checkpoint_jobs.plan(p1.plan_as_printed, jobs, {TRUNK: 30e6}).rates_bytes_per_s
    assert found == pytest.approx([1e7, 2e7])


def test_a_job_without_hazard_gets_nothing_and_checkpoints_never() -> None:
    found = checkpoint_jobs.plan(p1.plan_as_printed, [job("calm", per_h=0.0), job("busy", per_h=1.0)], {TRUNK: 1e8})
    assert (found.rates_bytes_per_s[0], found.intervals_s[0]) == (0.0, math.inf)


def test_a_loss_budget_that_its_share_cannot_keep_is_flagged_and_its_interval_is_the_floor() -> None:
    jobs = [job("a", loss_budget_s=100.0), job("b", loss_budget_s=100.0)]
    found = checkpoint_jobs.plan(p1.plan_as_printed, jobs, {TRUNK: 10e6})
    assert found.rates_bytes_per_s == pytest.approx([5e6, 5e6])
    assert found.infeasible.all()
    assert found.intervals_s == pytest.approx(1e9 / (0.2 * 5e6))


@pytest.mark.parametrize("per_h", [0.0, 0.36])
@pytest.mark.parametrize("rate", [0.0, 1e6])
@pytest.mark.parametrize("budget_s", [1.0, 100.0, math.inf])
@pytest.mark.parametrize("planner", [p1.plan_each, p1.plan_as_printed, p1.plan_one_interval])
def test_no_corner_gives_nan(planner: p1.Planner, per_h: float, rate: float, budget_s: float) -> None:
    found = checkpoint_jobs.plan(planner, [job("a", per_h=per_h, loss_budget_s=budget_s)], {TRUNK: rate})
    sent = float(found.rates_bytes_per_s[0])
    assert found.intervals_s[0] >= p1.transfer_s(1e9, sent) / 0.2
    assert found.infeasible[0] == (budget_s < math.inf and (sent == 0.0 or budget_s < 2500.0))


def test_one_interval_for_all_is_youngs_interval_of_the_means() -> None:
    jobs = [job("a", payload=1e9, per_h=1.0), job("b", payload=3e9, per_h=2.0)]
    found = checkpoint_jobs.plan(p1.plan_one_interval, jobs, {TRUNK: 1e9})
    theta = float((1 / found.rates_bytes_per_s).mean())
    assert found.intervals_s == pytest.approx(math.sqrt(2 * 2e9 * theta / (1.5 / HOUR_S)))
    jobs[0] = job("a", payload=1e9, per_h=1.0, loss_budget_s=60.0)  # the tightest holds for all
    assert checkpoint_jobs.plan(p1.plan_one_interval, jobs, {TRUNK: 1e9}).intervals_s == pytest.approx(120.0)


def test_a_job_without_hazard_does_not_keep_the_others_from_their_one_interval() -> None:
    found = checkpoint_jobs.plan(p1.plan_one_interval, [job("a"), job("calm", per_h=0.0)], {TRUNK: 1e7})
    assert found.intervals_s == pytest.approx([math.sqrt(2 * 1e9 / 1e7 / (0.5 / HOUR_S)), math.inf])


def test_a_static_interval_ignores_hazard_and_wire() -> None:
    jobs = [job("a", per_h=50.0), job("b", payload=400e9)]
    found = checkpoint_jobs.plan(p1.StaticPlanner(600.0), jobs, {TRUNK: 1e9})
    assert found.intervals_s.tolist() == [600.0, 600.0]
    assert found.rates_bytes_per_s.tolist() == [0.5e9, 0.5e9]


@pytest.mark.parametrize("jobs", [2, 7, 33, 200])
def test_staggered_timers_stay_apart_whatever_their_number(jobs: int) -> None:
    fires = sorted(p1.stagger(index, 600.0) for index in range(jobs))
    gaps = [b - a for a, b in zip(fires, [*fires[1:], fires[0] + 600.0], strict=True)]
    assert min(gaps) >= 0.38 * 600.0 / jobs
    assert fires[0] >= 0.0 and fires[-1] < 600.0
