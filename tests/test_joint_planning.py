"""P1, exactly: held to scipy's convex solver, to brute force over intervals and broken budgets, and to its own certificate."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.random import Generator, default_rng
from scipy.optimize import minimize

from controller.core.checkpointing import intervals as p1
from controller.core.checkpointing.cost import CheckpointCosts, bought, curves, lost, worth
from controller.core.checkpointing.dual_newton import NO_GUESS, SETTLED, TOLERANCE, cheapest
from controller.core.checkpointing.planner import JobColumns, plan_alike, plan_columns, plan_exact
from controller.numerics.arrays import Floats
from tests.checkpoint_jobs import HOUR_S, TRUNK, job
from topologies.spec import DirectedLink

BETA = 0.2
STEP = 1e-5  # relative, of a numerical derivative
Snapshot = Callable[[Any], Any]


def joint_cost(
    jobs: list[p1.CheckpointJob], plans: dict[str, p1.CheckpointSchedule], snapshot_s: Snapshot
) -> float:
    """lambda (D/2 + C/b) + p/D, over all jobs, straight from the plans; p is `snapshot_s` of C."""
    total = 0.0
    for j in jobs:
        interval_s, write_s = plans[j.key].interval_s, j.payload_bytes / plans[j.key].rate_bytes_per_s
        total += j.hazard_per_s * (interval_s / 2.0 + write_s) + snapshot_s(j.payload_bytes) / interval_s
    return total


def solved_by_scipy(
    jobs: list[p1.CheckpointJob],
    capacity: dict[DirectedLink, float],
    start: dict[str, p1.CheckpointSchedule],
    snapshot_s: Snapshot,
) -> float:
    """The least joint cost over rates *and* intervals, from two feasible points near the plan."""
    n = len(jobs)
    payload, hazard = (np.array([getattr(j, a) for j in jobs]) for a in ("payload_bytes", "hazard_per_s"))
    longest = np.array([2.0 * j.loss_budget_s for j in jobs])
    rate0 = np.array([start[j.key].rate_bytes_per_s for j in jobs])
    interval0 = np.array([start[j.key].interval_s for j in jobs])
    crosses = np.array([[link in j.links for j in jobs] for link in capacity], dtype=float)
    room = np.array(list(capacity.values()))

    def split(x: Floats) -> tuple[Floats, Floats]:
        return np.exp(x[:n]) * rate0, np.exp(x[n:]) * interval0

    def cost(x: Floats) -> float:
        rate, interval_s = split(x)
        return float((hazard * (interval_s / 2.0 + payload / rate) + snapshot_s(payload) / interval_s).sum())

    def slack(x: Floats) -> Floats:
        rate, interval_s = split(x)
        floors = np.log(interval_s * rate * BETA / payload)
        caps = np.log(np.minimum(longest, 1e12) / interval_s)
        own = np.log(np.minimum([j.write_cap_bytes_per_s for j in jobs], 1e15) / rate)
        return np.concatenate((1.0 - crosses @ rate / room, floors, caps, own))

    found = [
        minimize(
            cost,
            np.concatenate((np.full(n, shift), np.zeros(n))),
            constraints={"type": "ineq", "fun": slack},
            method="SLSQP",
            options={"maxiter": 2000, "ftol": 1e-14},
        )
        for shift in (0.0, -0.3)
    ]
    feasible = [float(f.fun) for f in found if slack(f.x).min() > -1e-8]
    return min(feasible, default=math.inf)


def random_jobs(rng: Generator, count: int, routes: list[tuple[DirectedLink, ...]]) -> list[p1.CheckpointJob]:
    return [
        job(
            f"j{i}",
            10.0 ** rng.uniform(8, 10),
            10.0 ** rng.uniform(-2, 1.5),
            math.inf if rng.random() < 0.5 else 10.0 ** rng.uniform(6.5, 8.5),
            math.inf if rng.random() < 0.5 else 10.0 ** rng.uniform(3, 5),
            routes[int(rng.integers(len(routes)))],
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("switches", [2, 4, 5])
@pytest.mark.parametrize("seed", range(10))
def test_no_solver_finds_less(switches: int, seed: int) -> None:
    """On one link, and on chains of them; with loss budgets where all of them can be kept."""
    rng = default_rng(1000 * switches + seed)
    links = [DirectedLink(f"s{i}", f"s{i + 1}") for i in range(switches - 1)]
    routes = [tuple(links[a:b]) for a, b in itertools.combinations(range(switches), 2)]
    capacity = {link: 10.0 ** rng.uniform(7, 8.5) for link in links}
    jobs = random_jobs(rng, int(rng.integers(2, 8)), routes)
    least_s, write_bytes_per_s = 10.0 ** rng.uniform(-1, 2), 10.0 ** rng.uniform(8, 11)

    def snapshot_s(payload_bytes: Any) -> Any:
        return least_s + payload_bytes / write_bytes_per_s

    plans = plan_exact(jobs, capacity, BETA, snapshot_s)
    if any(plan.interval.loss_budget_infeasible for plan in plans.values()):
        jobs = [replace(j, loss_budget_s=math.inf) for j in jobs]
        plans = plan_exact(jobs, capacity, BETA, snapshot_s)
    ours, judge = joint_cost(jobs, plans, snapshot_s), solved_by_scipy(jobs, capacity, plans, snapshot_s)
    assert judge >= ours * (1.0 - 1e-6)
    assert judge <= ours * (1.0 + 1e-3)  # the judge got there, over a kink: it is a judge


def test_jobs_taken_for_alike_have_one_interval_and_lose_no_less() -> None:
    """By the means of hazards and pauses, under the tightest budget."""
    jobs = [
        replace(job, loss_budget_s=1e9, write_cap_bytes_per_s=math.inf)
        for job in random_jobs(default_rng(5), 12, [(TRUNK,)])
    ]
    snapshot_s = lambda size_bytes: size_bytes / 6e9  # noqa: E731
    capacity = {TRUNK: 1e15}  # no job waits for a link
    plans = plan_alike(jobs, capacity, BETA, snapshot_s)
    [interval_s] = {round(plan.interval_s, 6) for plan in plans.values()}
    pause_s = np.mean([snapshot_s(job.payload_bytes) for job in jobs])
    hazard_per_s = np.mean([job.hazard_per_s for job in jobs])
    assert interval_s == pytest.approx(math.sqrt(2.0 * pause_s / hazard_per_s))
    each = plan_exact(jobs, capacity, BETA, snapshot_s)
    assert joint_cost(jobs, each, snapshot_s) < 0.95 * joint_cost(jobs, plans, snapshot_s)
    tight = [*jobs[1:], replace(jobs[0], loss_budget_s=interval_s / 4.0)]
    halved = {round(plan.interval_s, 6) for plan in plan_alike(tight, capacity, BETA, snapshot_s).values()}
    assert halved == {round(interval_s / 2.0, 6)}


def test_jobs_checkpoint_as_often_as_their_snapshots_and_their_slices_allow() -> None:
    jobs = [
        job("calm", per_h=0.01),
        job("hasty", payload=8e9, per_h=5.0),
        job("promised", per_h=0.01, loss_budget_s=200.0),
    ]
    plans = plan_exact(jobs, {TRUNK: 1e9}, BETA, lambda _: 0.5)
    assert plans["calm"].interval_s == pytest.approx(math.sqrt(2 * 0.5 * HOUR_S / 0.01))
    assert plans["hasty"].interval_s == pytest.approx(8e9 / (BETA * plans["hasty"].rate_bytes_per_s))
    assert plans["promised"].interval_s == pytest.approx(400.0)
    bounds = [plans[key].interval.bound for key in ("calm", "hasty", "promised")]
    assert bounds == [p1.RateBound.YOUNG, p1.RateBound.NETWORK, p1.RateBound.LOSS_BUDGET]


# ---------------------------------------------------------------- one job's curve


def costs_of(payload: Floats, hazard: Floats, budget_s: Floats, pause_s: float) -> CheckpointCosts:
    none_broken = np.zeros(len(payload), dtype=np.bool_)
    return curves(payload, hazard, budget_s, BETA, none_broken, np.full(len(payload), pause_s))


@given(
    st.lists(st.tuples(st.floats(7, 11), st.floats(-7, -2), st.floats(2, 6)), min_size=1, max_size=6),
    st.floats(5, 9),
    st.floats(1e-3, 1e3),
)
def test_a_job_buys_the_rate_at_which_its_marginal_cost_is_the_price(
    shapes: list[tuple[float, float, float]], log_rate: float, pause_s: float
) -> None:
    payload, hazard, budget = (10.0 ** np.array(column) for column in zip(*shapes, strict=True))
    costs, rate = costs_of(payload, hazard, budget, pause_s), 10.0**log_rate
    for number in range(len(shapes)):
        price = worth(costs, number, rate)
        assert bought(costs, number, price)[0] == pytest.approx(rate, rel=1e-9)
        less, more = (lost(costs, number, rate * (1 + sign * STEP)) for sign in (-1, 1))
        assert (less - more) / (2 * STEP * rate) == pytest.approx(price, rel=1e-4)


def test_the_cost_of_a_rate_is_the_least_over_all_intervals_less_a_constant() -> None:
    rng = default_rng(2)
    for _ in range(50):
        payload, hazard = 10.0 ** rng.uniform(8, 10), 10.0 ** rng.uniform(-6, -3)
        pause_s = 10.0 ** rng.uniform(-1, 2)
        costs = costs_of(np.array([payload]), np.array([hazard]), np.array([np.inf]), pause_s)
        freely = math.sqrt(2.0 * pause_s * hazard)  # lambda D/2 + p/D of the best D
        for rate in 10.0 ** rng.uniform(5, 9, 4):
            write_s = payload / rate
            allowed = np.geomspace(write_s / BETA, 1e9, 20001)
            least = (hazard * (allowed / 2 + write_s) + pause_s / allowed).min()
            assert lost(costs, 0, rate) + freely == pytest.approx(least, rel=1e-5)


# ---------------------------------------------------------------- properties

Shape = tuple[
    float, float, float, float, int
]  # logarithms of payload, hazard, cap and budget; links, a bit each
shapes_of_jobs = st.lists(
    st.tuples(
        st.floats(7, 11),
        st.one_of(st.just(-math.inf), st.floats(-3, 2)),
        st.one_of(st.just(math.inf), st.floats(4, 9)),
        st.one_of(st.just(math.inf), st.floats(0, 6)),
        st.integers(1, 15),
    ),
    max_size=9,
)
capacities = st.lists(st.one_of(st.just(0.0), st.floats(1e5, 1e10)), min_size=4, max_size=4)
LINKS = [DirectedLink(f"a{i}", f"b{i}") for i in range(4)]


def as_jobs(shapes: list[Shape]) -> list[p1.CheckpointJob]:
    return [
        job(
            f"j{i}",
            10.0**c,
            10.0**h,
            10.0**w,
            10.0**b,
            tuple(x for n, x in enumerate(LINKS) if bits >> n & 1),
        )
        for i, (c, h, w, b, bits) in enumerate(shapes)
    ]


@given(shapes_of_jobs, capacities, st.randoms(use_true_random=False))
def test_rates_fit_budgets_are_kept_or_flagged_and_the_order_of_jobs_has_no_say(
    shapes: list[Shape], rooms: list[float], rng: Any
) -> None:
    jobs, capacity = as_jobs(shapes), dict(zip(LINKS, rooms, strict=True))
    plans = plan_exact(jobs, capacity, BETA)
    for link, room in capacity.items():
        assert sum(plans[j.key].rate_bytes_per_s for j in jobs if link in j.links) <= room * (1 + 1e-9)
    for j in jobs:
        plan = plans[j.key]
        assert 0.0 <= plan.rate_bytes_per_s <= j.write_cap_bytes_per_s
        assert not math.isnan(plan.interval_s)
        needed = p1.bandwidth_needed(j.payload_bytes, j.loss_budget_s, BETA)
        assert plan.interval.loss_budget_infeasible == (plan.rate_bytes_per_s < needed * (1 - 1e-9))
    shuffled = list(jobs)
    rng.shuffle(shuffled)
    assert plan_exact(shuffled, capacity, BETA) == plans


class Problem(NamedTuple):
    costs: CheckpointCosts
    lower: Floats
    upper: Floats
    routes: np.ndarray
    capacity: Floats


def problem_of(jobs: list[p1.CheckpointJob], rooms: list[float], pause_s: float) -> Problem:
    """The allocation of these jobs, whose loss budgets are left out."""
    rows = [[n if link in j.links else len(LINKS) for n, link in enumerate(LINKS)] for j in jobs]
    payload, hazard, cap = (
        np.array([getattr(j, name) for j in jobs], dtype=float)
        for name in ("payload_bytes", "hazard_per_s", "write_cap_bytes_per_s")
    )
    costs = costs_of(payload, hazard, np.full(len(jobs), np.inf), pause_s)
    routes = np.array(rows, dtype=np.intp).reshape(len(jobs), len(LINKS))
    return Problem(costs, np.zeros(len(jobs)), cap, routes, np.array(rooms))


@given(shapes_of_jobs, capacities, st.floats(1.0, 3.0), st.sampled_from([0.0, 0.15, 100.0, 1e6]))
@example(
    [(7.0, 1.0, math.inf, math.inf, 4), (11.0, 1.5, 4.0, math.inf, 4)],
    [0.0, 0.0, 311775939.0, 0.0],
    1.0,
    0.15,
)
def test_every_answer_is_certified_and_more_budget_never_costs_more(
    shapes: list[Shape], rooms: list[float], factor: float, pause_s: float
) -> None:
    lost_s = []
    for times in (1.0, factor):
        problem = problem_of(as_jobs(shapes), [room * times for room in rooms], pause_s)
        rates, _, gap = cheapest(*problem, NO_GUESS, SETTLED)
        assert gap <= TOLERANCE
        lost_s.append(math.fsum(lost(problem.costs, job, rate) for job, rate in enumerate(rates.tolist())))
    assert lost_s[1] <= lost_s[0] * (1 + 2 * TOLERANCE) or lost_s[0] == math.inf


def campus_routes(rng: Generator, hosts: int) -> tuple[np.ndarray, Floats]:
    """A job on each second host, its standby anywhere: routes over host, access and building links."""
    jobs, access = hosts // 2, -(-hosts // 24)
    source, target = rng.choice(hosts, jobs, replace=False), rng.integers(0, hosts, jobs)
    per = -(-hosts // 4)
    first = np.cumsum([0, hosts, hosts, access, access, 4])
    columns = [source, target, source // 24, target // 24, source // per, target // per]
    apart = [source != target] * 2 + [source // 24 != target // 24] * 2 + [source // per != target // per] * 2
    capacity = np.repeat([84e6, 84e6, 840e6, 840e6, 840e6, 840e6], [hosts, hosts, access, access, 4, 4])
    routes = np.stack(
        [np.where(a, f + c, len(capacity)) for a, f, c in zip(apart, first, columns, strict=True)], axis=1
    )
    return routes.astype(np.intp), capacity


@pytest.mark.parametrize(("hosts", "seeds"), [(54, 10), (500, 6), (2000, 2)])
def test_on_whole_campuses_the_certificate_holds(hosts: int, seeds: int) -> None:
    for seed in range(seeds):
        rng = default_rng(seed)
        routes, capacity = campus_routes(rng, hosts)
        n = len(routes)
        columns = JobColumns(
            10.0 ** rng.uniform(8, 10.3, n),
            10.0 ** rng.uniform(-1.5, 1, n) / HOUR_S,
            np.full(n, np.inf),
            np.where(rng.random(n) < 0.5, np.inf, rng.uniform(300, 4000, n)),
            np.full(n, 0.15),
            routes,
        )
        planned = plan_columns(columns, capacity, BETA)
        assert planned.gap <= TOLERANCE
        load = np.bincount(routes.ravel(), np.repeat(planned.rates_bytes_per_s, 6), len(capacity) + 1)
        assert (load[:-1] <= capacity * (1 + 1e-9)).all()


# ---------------------------------------------------------------- loss budgets that do not fit


def test_no_split_of_a_link_loses_much_less_work_than_one_that_breaks_both_budgets() -> None:
    payload, hazard = np.array([10.279e9, 12.611e9]), np.array([3.182e-6, 4.594e-6])
    budget_s, room = np.array([300.0, 1200.0]), 82e6
    pauses_s = payload / 1.5e9

    def lost_work(rate: Floats) -> float:
        write_s, best_s = payload / rate, np.sqrt(2.0 * pauses_s / hazard)
        interval_s = np.maximum(np.minimum(best_s, 2.0 * budget_s), write_s / BETA)
        return float((hazard * (interval_s / 2.0 + write_s)).sum())

    columns = JobColumns(
        payload, hazard, np.full(2, np.inf), budget_s, pauses_s, np.zeros((2, 1), dtype=np.intp)
    )
    plan = plan_columns(columns, np.array([room]), BETA)
    assert not plan.budget_kept.all()
    shares = np.linspace(0.01, 0.99, 981)
    least = min(lost_work(np.array([room * share, room * (1.0 - share)])) for share in shares)
    assert lost_work(plan.rates_bytes_per_s) < 1.005 * least


def test_budgets_bind_on_the_links_where_all_of_them_fit_and_only_there() -> None:
    full, roomy = DirectedLink("full", "core"), DirectedLink("roomy", "core")
    jobs = [
        job(f"{link.source}{n}", per_h=0.01, loss_budget_s=100.0, links=(link,))
        for link in (full, roomy)
        for n in "abc"
    ]
    plans = plan_exact(jobs, {full: 60e6, roomy: 80e6}, BETA)  # each budget needs 25 MB/s
    assert [j.key for j in jobs if not plans[j.key].interval.loss_budget_infeasible] == [
        "roomya",
        "roomyb",
        "roomyc",
    ]
    assert plans["fulla"].rate_bytes_per_s == pytest.approx(20e6)  # none is kept at the others' expense


# ---------------------------------------------------------------- corners


def test_no_jobs_have_an_empty_plan() -> None:
    assert plan_exact([], {TRUNK: 1.0}) == {}


def test_a_link_without_a_budget_is_named() -> None:
    with pytest.raises(ValueError, match="link sw>core: capacity None: a finite rate"):
        plan_exact([job("a")], {})


def test_a_key_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="a key appears twice"):
        plan_exact([job("a"), job("a")], {TRUNK: 1.0})


def test_without_bandwidth_no_job_ever_checkpoints_and_it_is_said() -> None:
    plan = plan_exact([job("a", loss_budget_s=60.0)], {TRUNK: 0.0})["a"]
    assert (plan.rate_bytes_per_s, plan.interval_s) == (0.0, math.inf)
    assert plan.interval.loss_budget_infeasible


def test_a_job_on_its_standbys_own_host_writes_at_its_cap() -> None:
    assert plan_exact([job("a", cap=7e6, links=())], {})["a"].rate_bytes_per_s == 7e6


def test_a_calm_job_with_a_loss_budget_gets_what_the_budget_needs_and_one_without_gets_nothing() -> None:
    jobs = [job("calm", per_h=0.0, loss_budget_s=1000.0), job("idle", per_h=0.0), job("busy", per_h=50.0)]
    plans = plan_exact(jobs, {TRUNK: 1e8}, BETA)
    assert plans["calm"].rate_bytes_per_s >= 1e9 / (2 * BETA * 1000.0) * (1 - 1e-9)
    assert plans["idle"].rate_bytes_per_s == 0.0 and plans["idle"].interval_s == math.inf
