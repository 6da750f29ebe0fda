"""An oracle's windows: optimal by brute force, feasible by an independent judge, and honest about what is not proved."""

from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments.inputs.scenario import OwnerEvent
from experiments.inputs.traces import Trace
from experiments.worlds.oracle import program
from experiments.worlds.oracle.future import ClassBudgets, LinkBudgets, Stay, future_of
from experiments.worlds.oracle.problem import Booking, WindowProblem
from experiments.worlds.oracle.program import solve
from experiments.worlds.oracle.transfer_times import TransferTimes
from testbed.enforcement import PACING_SHARE
from tests.oracle_worlds import brute_force, faults, window
from topologies.paths import Routes
from topologies.presets import three_tier
from topologies.spec import DirectedLink, Role

LONG_S = 60.0


@pytest.mark.parametrize("seed", range(12))
def test_the_plan_costs_what_the_best_of_all_combinations_costs(seed: int) -> None:
    problem = window(seed)
    answer = solve(problem, LONG_S)
    assert answer.status == "optimal"
    assert answer.objective_s == pytest.approx(brute_force(problem), rel=1e-6, abs=1e-6)
    assert not faults(problem, answer.chosen)


@pytest.mark.parametrize("seed", range(6))
def test_crowded_plans_keep_within_links_and_gpus(seed: int) -> None:
    problem = window(200 + seed, hosts=10, jobs=8)
    assert not faults(problem, solve(problem, LONG_S).chosen)


def test_bound_and_gap_are_the_solvers() -> None:
    problem = contended()
    exact = solve(problem, LONG_S)
    loose = solve(problem, LONG_S, gap=0.9)
    assert exact.gap <= 1e-6
    assert loose.bound_s <= exact.objective_s + 1e-6 <= loose.objective_s + 2e-6
    assert loose.gap == pytest.approx(1.0 - loose.bound_s / loose.objective_s, abs=1e-9)


def test_what_a_time_limit_leaves_is_reported_with_the_solvers_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = contended()
    exact = solve(problem, LONG_S)
    chosen = np.array([float(any(choice is each for each in exact.chosen)) for choice in problem.handovers])
    monkeypatch.setattr(program, "milp", lambda *_, **__: cut_off(chosen, 0.75 * exact.objective_s))
    answer = solve(problem, LONG_S)
    assert (answer.status, answer.gap) == ("time limit", pytest.approx(0.25))


def test_a_limit_that_strikes_before_anything_is_found_leaves_a_feasible_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = contended()
    monkeypatch.setattr(program, "milp", lambda *_, **__: cut_off(None, None))
    answer = solve(problem, LONG_S)
    assert answer.status == "nothing"
    assert answer.gap == 1.0
    assert not faults(problem, answer.chosen)


def cut_off(x: Any, bound: float | None) -> SimpleNamespace:
    return SimpleNamespace(x=x, status=1, mip_dual_bound=bound)


def contended() -> WindowProblem:
    """A window in which not everybody gets what would be best for him alone."""
    return next(p for seed in range(50) if _is_contended(p := window(seed, targets_apart_s=5.0)))


def _is_contended(problem: WindowProblem) -> bool:
    alone = sum(
        min(h.cost_s for h in problem.handovers if (h.job, h.stay) == (r.name, r.stay))
        for r in problem.runners
        if (r.name, r.stay) in problem.nodes
    )
    return solve(problem, LONG_S).objective_s > alone + 5.0


def test_no_migration_is_offered_that_cannot_end_within_its_notice() -> None:
    problems = [window(seed) for seed in range(30)]
    offered = [(p, h) for p in problems for h in p.handovers if h.migrates]
    assert offered
    for problem, handover in offered:
        runner = next(r for r in problem.runners if r.name == handover.job)
        rate = handover.bookings[0].rate_bytes_per_s
        assert runner.spec.payload_bytes / rate + 10.0 <= handover.stay.announced_s
        assert handover.bookings[0].until_s + 10.0 <= handover.stay.until_s
    short = [(p, r) for p in problems for r in p.runners if r.stay and r.stay.announced_s == 20.0]
    degraded = [
        (p, r) for p, r in short if not any(h.migrates and h.job == r.name and h.stay == r.stay for h in p.handovers)
    ]
    assert degraded  # 20 s are too short for most payloads: these are only protected


def test_every_checkpoint_is_complete_before_its_stay_ends() -> None:
    for seed in range(20):
        for handover in window(seed).handovers:
            if handover.bookings and not handover.migrates:
                assert handover.bookings[-1].until_s <= handover.stay.until_s
                assert handover.loss_s == pytest.approx(handover.stay.until_s - handover.begins_s[-1])


# ---------------------------------------------------------------- transfer times and link budgets
def transfer_times(
    left: tuple[float, ...] = (), overhead_s: float = 0.5
) -> tuple[TransferTimes, tuple[DirectedLink, ...]]:
    campus = three_tier(hosts=2, buildings=1)
    first, second = (host.name for host in campus.hosts_of(Role.VOLUNTEER))
    routes = Routes(campus)
    links = routes.route(first, second)
    always = dict.fromkeys(campus.capacity_bytes_per_s, 80e6)
    rows = [{**always, links[0]: min(80e6, rate)} for rate in left]
    budgets = LinkBudgets(rows or [always], 0.0, 100.0)
    return TransferTimes(routes, ClassBudgets(budgets, budgets), overhead_s, 10.0, lambda _: 0.15), links


def test_a_checkpoint_is_laid_out_backwards_over_the_epochs_of_the_background() -> None:
    carrier, links = transfer_times((80e6, 20e6, 40e6, 80e6))
    sending = carrier.whole(9e9, links, 350.0)
    pieces = sending.bookings
    assert [piece.rate_bytes_per_s for piece in pieces] == [20e6, 40e6, 80e6]
    carried = sum((p.until_s - p.from_s) * p.rate_bytes_per_s * PACING_SHARE for p in pieces)
    assert carried == pytest.approx(9e9 + 0.5 * pieces[0].rate_bytes_per_s * PACING_SHARE)
    assert pieces[0].from_s == sending.begins_s[0] == 350.0 - sending.lead_s


def test_a_checkpoint_is_laid_out_beside_what_others_have_of_its_links() -> None:
    carrier, links = transfer_times(overhead_s=0.0)
    others = [Booking((links[0],), 100.0, 200.0, 50e6), Booking((links[-1],), 150.0, 180.0, 30e6)]
    sending = carrier.whole(9e9, links, 210.0, others)
    rates = [(piece.from_s, piece.until_s, piece.rate_bytes_per_s) for piece in sending.bookings[1:]]
    assert rates == [(100.0, 150.0, 30e6), (150.0, 180.0, 30e6), (180.0, 200.0, 30e6), (200.0, 210.0, 80e6)]
    carried = sum((p.until_s - p.from_s) * p.rate_bytes_per_s * PACING_SHARE for p in sending.bookings)
    assert carried == pytest.approx(9e9)


def test_shares_change_with_their_epochs() -> None:
    carrier, links = transfer_times((50e6, 10e6, 90e6))
    budgets = carrier.budgets.together
    assert [budgets.path(links, at_s) for at_s in (-5.0, 0.0, 99.9, 100.0, 250.0, 1e6)] == [
        50e6,
        50e6,
        50e6,
        10e6,
        80e6,
        80e6,
    ]
    assert budgets.changes_s(50.0, 200.0) == [100.0]
    assert budgets.changes_s(50.0, 500.0) == [100.0, 200.0]


def test_stays_are_what_owners_leave() -> None:
    campus = three_tier(hosts=2, buildings=1)
    first, second = (host.name for host in campus.hosts_of(Role.VOLUNTEER))
    events = (
        OwnerEvent(10.0, second, "return"),
        OwnerEvent(20.0, first, "reclaim", 5.0),
        OwnerEvent(60.0, first, "return"),
        OwnerEvent(90.0, first),
    )
    future = future_of(campus, Trace("by hand", (), events, away=(second,)), 1.0)
    assert future.stays[first] == (Stay(first, 0.0, 21.0, 26.0), Stay(first, 61.0, 91.0, 91.0))
    assert future.stays[second] == (Stay(second, 11.0, inf, inf),)
    assert future.at(first, 40.0) is None
    assert [stay.host for stay in future.open_at(22.0)] == [second]
