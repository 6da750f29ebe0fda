"""No choice of checkpoints costs less than the bound: against random ones, played second by second, and near the best of them."""

import random
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from math import inf, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.theory.domain import DomainError
from experiments.theory.paper_a.least_cost import forced_snapshots, least_cost_s

Pieces = Sequence[tuple[float, float]]


def cost_s(pieces: Pieces, pause_s: float, snapshots: Sequence[tuple[float, float]], step_s: float = 0.0) -> float:
    """Pauses and the integral of hazard times work at risk, exactly. `snapshots`: (s for which the job computes after the one
    before, s from its end until it is elsewhere). What is not over when the pieces are counts as far as it has come.

    Between two changes the work at risk grows evenly or stands still, so its mean is that of its ends.
    """
    changes, at_s, work_s = list[tuple[float, str, float]](), 0.0, 0.0
    for gap_s, transfer_s in snapshots:
        at_s, work_s = at_s + gap_s, work_s + gap_s
        changes += [(at_s, "stands", 0.0), (at_s + pause_s, "computes", 0.0)]
        at_s += pause_s
        changes.append((at_s + transfer_s, "kept", work_s))
    over_s = 0.0
    for length_s, hazard in pieces:
        changes.append((over_s, "hazard", hazard))
        over_s += length_s
    changes.append((over_s, "over", 0.0))
    total, now_s, worked_s, kept_s, hazard, speed = 0.0, 0.0, 0.0, 0.0, 0.0, 1.0
    for at_s, what, value in sorted(changes, key=lambda change: change[0]):
        length_s = at_s - now_s
        total += (1.0 - speed) * length_s
        total += hazard * length_s * (worked_s - kept_s + speed * (length_s - step_s) / 2.0)
        worked_s, now_s = worked_s + speed * length_s, at_s
        match what:
            case "over":
                break
            case "hazard":
                hazard = value
            case "kept":
                kept_s = max(kept_s, value)
            case _:
                speed = float(what == "computes")
    return total


@given(
    pieces=st.lists(
        st.tuples(st.floats(1.0, 4000.0), st.one_of(st.just(0.0), st.floats(1e-7, 3e-3))), min_size=1, max_size=6
    ),
    pause_s=st.floats(0.01, 20.0),
    longest_s=st.floats(30.0, 2000.0),
    parts=st.lists(st.floats(0.02, 1.0), min_size=40, max_size=40),
)
def test_no_schedule_within_a_loss_budget_costs_less(
    pieces: Pieces, pause_s: float, longest_s: float, parts: list[float]
) -> None:
    """From the begin of one snapshot to that of the next at most so long, as plans count."""
    least = least_cost_s(pieces, pause_s, longest_interval_s=longest_s)
    length_s = sum(each for each, _ in pieces)
    schedule: list[tuple[float, float]] = []
    at_s = 0.0
    while at_s < length_s:
        stood_s = pause_s if schedule else 0.0
        gap_s = max(0.0, longest_s * parts[len(schedule) % 40] - stood_s)
        schedule.append((gap_s, 0.0))
        at_s += gap_s + pause_s
    assert least <= cost_s(pieces, pause_s, schedule) + 1e-9


def test_a_snapshot_that_begins_as_its_time_is_over_is_not_forced() -> None:
    """Ten intervals long: nine snapshots end in it, the tenth begins at its end."""
    pieces, pause_s, longest_s = [(6000.0, 1e-9)], 20.0, 600.0
    costs = cost_s(pieces, pause_s, [(longest_s, 0.0), *[(longest_s - pause_s, 0.0)] * 9])
    assert [forced_snapshots(6000.0 + more_s, pause_s, longest_s) for more_s in (0.0, 19.9, 20.0)] == [9, 9, 10]
    assert 0.99 * costs < least_cost_s(pieces, pause_s, longest_interval_s=longest_s) <= costs
    assert forced_snapshots(10.0, pause_s, longest_s) == forced_snapshots(6000.0, pause_s, inf) == 0


def best_of_all(hazards: Sequence[float], pause: int, transfer: int, step_s: float) -> float:
    """The least cost in whole seconds, over every choice of when to begin snapshots: a hazard for each second.

    A checkpoint is elsewhere `transfer` seconds after its snapshot. One more may be taken meanwhile, no third.
    """

    @cache
    def rest(now: int, work: int, standing: int, ways: tuple[tuple[int, int], ...]) -> float:
        """The least from `now` on; `work` at risk, `standing` seconds of a snapshot yet to come; `ways`: (seconds until it is
        elsewhere, work since its state) of what is on its way, in order."""
        if now == len(hazards):
            return 0.0
        came = [since for left, since in ways if left == 0]
        if came:
            return rest(now, min(work, *came), standing, tuple(way for way in ways if way[0] > 0))
        sooner = [(left - 1, since) for left, since in ways]
        if standing:  # that of the snapshot itself is the last
            if standing == 1:
                sooner.append((transfer, 0))
            return 1.0 + hazards[now] * work + rest(now + 1, work, standing - 1, tuple(sooner))
        on = tuple((left, since + 1) for left, since in sooner)
        best = hazards[now] * (work + 0.5 - step_s / 2.0) + rest(now + 1, work + 1, 0, on)
        return min(best, rest(now, work, pause, ways)) if len(ways) < 2 else best

    return rest(0, 0, 0, ())


@pytest.mark.parametrize("seed", range(30))
def test_the_best_of_all_choices_costs_no_less(seed: int) -> None:
    """Hazards that fall once, and some that rise and fall again and again."""
    rng = random.Random(seed)
    pause, transfer, step_s = rng.choice((1, 2, 4)), rng.choice((0, 0, 4, 8)), rng.choice((0.0, 0.9))
    high, low = rng.choice((0.002, 0.006, 0.1, 0.25)), rng.choice((0.0, 0.0002, 0.001))
    spells = rng.choice(((20, 60), (20, 60), (1, 5), (1, 20)))
    hazards: list[float] = []
    while len(hazards) < 75:
        hazards += [high] * rng.randint(*spells) + [low] * rng.randint(*spells)
    pieces = [(float(len(list(same))), hazard) for hazard, same in groupby(hazards[:75])]
    best = best_of_all(hazards[:75], pause, transfer, step_s)
    assert least_cost_s(pieces, pause, transfer, step_s=step_s) <= best + 1e-9


def best_of_periods(pieces: Pieces, pause_s: float, transfer_s: float) -> float:
    """The least cost of snapshots at even distances, over many distances; transfers overlap with what comes next."""
    length_s = sum(each for each, _ in pieces)
    costs = []
    for count in range(1, 120):
        gap_s = length_s / count - pause_s
        if gap_s + pause_s >= transfer_s:
            costs.append(cost_s(pieces, pause_s, [(gap_s, transfer_s)] * (count - 1)))
    return min(costs)


@pytest.mark.parametrize("transfer_s", [0.0, 60.0])
def test_the_bound_is_near_what_even_intervals_cost(transfer_s: float) -> None:
    """A day under one hazard: some forty intervals."""
    pieces = [(86_400.0, 1e-6)]
    best = best_of_periods(pieces, 2.0, transfer_s)
    assert 0.97 * best < least_cost_s(pieces, 2.0, transfer_s) <= best
    assert best == pytest.approx(86_400.0 * (sqrt(2.0 * 2.0 * 1e-6) + 1e-6 * transfer_s), rel=0.04)


def test_a_loss_budget_that_binds_raises_the_bound_to_nearly_what_it_costs() -> None:
    pieces, longest_s, pause_s = [(86_400.0, 1e-6)], 600.0, 2.0
    costs = cost_s(pieces, pause_s, [(longest_s - pause_s, 0.0)] * 144)
    free, within = (least_cost_s(pieces, pause_s, longest_interval_s=each) for each in (inf, longest_s))
    assert free < 0.6 * within
    assert 0.98 * costs < within <= costs
    assert least_cost_s(pieces, pause_s, longest_interval_s=1e6) == free


@pytest.mark.parametrize(
    ("pieces", "others"),
    [
        ([(-1.0, 0.1)], (1.0, 0.0)),
        ([(1.0, -0.1)], (1.0, 0.0)),
        ([(1.0, inf)], (1.0, 0.0)),
        ([(1.0, 0.1)], (-1.0, 0.0)),
        ([(1.0, 0.1)], (1.0, float("nan"))),
    ],
)
def test_what_is_no_number_or_negative_is_refused(pieces: Pieces, others: tuple[float, float]) -> None:
    with pytest.raises(DomainError, match="finite number of 0 or more"):
        least_cost_s(pieces, *others)
    with pytest.raises(DomainError, match="longest interval"):
        least_cost_s([(1.0, 0.1)], 1.0, longest_interval_s=0.0)
