"""The replay kernel: the live queue's decisions job by job, the same bits compiled or not, and runs in pieces."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.core.queueing import replay as replaying
from controller.core.queueing.controllers.controller import Controller
from controller.core.queueing.queue import Dispatch, OnDemand, SpotJob, SpotQueue
from controller.core.queueing.replay import LEFT, REFUSED, SPOT, WAITING, QueueState, ReplayOutcome, Rule, replay


class History(NamedTuple):
    jobs_s: list[float]
    spots_s: list[float]
    draws: list[float]


@st.composite
def histories(draw: st.DrawFn, most: int = 25) -> History:
    """Times on a grid, so that jobs, spots and deadlines often come together; the first event is a spot."""
    grid = st.integers(1, 30).map(lambda tick: tick / 2.0)
    jobs_s = sorted(draw(st.lists(grid, max_size=most)))
    spots_s = [0.0, *sorted(draw(st.lists(grid, max_size=most)))]
    share = st.sampled_from([0.0, 0.2, 0.5, 0.8, math.nextafter(1.0, 0.0)])
    return History(jobs_s, spots_s, draw(st.lists(share, min_size=len(jobs_s), max_size=len(jobs_s))))


ages = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5, math.inf])
fewer = st.sampled_from([0.0, 0.7, 1.0, 2.5, math.inf])
rules = st.builds(Rule, st.sampled_from([0.0, 0.3, 1.0, 1.5, 2.0, 3.7, math.inf]), ages, ages, ages, ages, fewer)


lives = st.sampled_from([0.0, 0.5, 1.5, 4.0, math.inf])


class Fate(NamedTuple):
    decision: int
    delay_s: float


def live(rule: Rule, history: History, ttl_s: float) -> list[Fate]:
    """What the live queue does, told of everything in the order that replaying documents for one moment."""
    queue, fates = SpotQueue(Controller(rule), ttl_s), [Fate(WAITING, math.nan)] * len(history.jobs_s)
    arrivals = [(at_s, 0, number) for number, at_s in enumerate(history.spots_s)]
    arrivals += [(at_s, 1, number) for number, at_s in enumerate(history.jobs_s)]
    for at_s, kind, number in sorted(arrivals):
        while (due_s := queue.next_deadline_s()) < at_s or (kind == 1 and due_s == at_s):
            queue.expire(due_s)
            for gone in queue.renege(due_s):
                fates[int(gone.job)] = Fate(LEFT, gone.delay_s)
        job = SpotJob(str(number))
        answer = queue.offer(number, at_s) if kind == 0 else queue.submit(job, at_s, history.draws[number])
        if isinstance(answer, Dispatch):
            fates[int(answer.job)] = Fate(SPOT, answer.delay_s)
        elif isinstance(answer, OnDemand):
            fates[number] = Fate(REFUSED, 0.0)
    return fates


def fates(outcome: ReplayOutcome) -> list[Fate]:
    return [Fate(*pair) for pair in zip(outcome.decisions.tolist(), outcome.delays_s.tolist(), strict=True)]


def same(left: list[Fate], right: list[Fate]) -> bool:
    return np.array_equal(np.array(left), np.array(right), equal_nan=True)


def bits(outcome: ReplayOutcome) -> tuple[object, ...]:
    counts = (outcome.arrivals, outcome.spot, outcome.on_demand, outcome.spots, outcome.idle_spots)
    return (*counts, outcome.total_delay_s, outcome.end, outcome.decisions.tobytes(), outcome.delays_s.tobytes())


@given(rules, histories(), lives)
@example(Rule(2.0, leave_at_age_s=1.0), History([0.5, 1.0], [0.0, 1.0], [0.0, 0.0]), 0.0)
@example(Rule(2.0, longest_wait_s=1.0), History([0.5, 1.5], [0.0, 1.5], [0.0, 0.0]), 0.0)
@example(Rule(1.0, 1.0, 2.0, 1.0), History([0.5, 1.0, 2.0], [0.0], [0.0, 0.0, 0.0]), 0.0)
@example(Rule(0.0), History([1.0, 2.0], [0.0, 0.5], [0.0, 0.0]), 1.5)
def test_the_live_queue_decides_the_same_job_by_job(rule: Rule, history: History, ttl_s: float) -> None:
    assert same(fates(replay(rule, *history, ttl_s, record=True)), live(rule, history, ttl_s))


@pytest.mark.parametrize("rule", [Rule(0.3), Rule(2.8), Rule(2.0, 0.3, 1.0, 0.3), Rule(math.inf, longest_wait_s=1.1)])
def test_compiled_and_plain_give_the_same_bits_where_rounding_matters(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, jobs = np.random.default_rng(2), 20_000
    jobs_s, spots_s = np.cumsum(rng.exponential(1.0, jobs)), np.cumsum(rng.gamma(0.5, 2.0, jobs))
    history = History(jobs_s.tolist(), spots_s[spots_s <= jobs_s[-1]].tolist(), rng.random(jobs).tolist())
    compiled = replay(rule, *history, 0.25, record=True)
    monkeypatch.setattr(replaying, "run", replaying.run.py_func)
    assert bits(replay(rule, *history, 0.25, record=True)) == bits(compiled)


@given(rules, histories(), lives, st.lists(st.integers(0, 16), max_size=3).map(sorted))
def test_a_history_in_pieces_is_the_same_history(rule: Rule, history: History, ttl_s: float, cuts_s: list[int]) -> None:
    whole = replay(rule, *history, ttl_s, record=True)
    state, left, delay_s = QueueState(), 0, 0.0
    job_numbers: list[int] = []
    seen: dict[int, Fate] = {}
    for jobs_s, spots_s, draws, first in pieces(history, [-1, *cuts_s, 1000]):
        piece = replay(rule, jobs_s, spots_s, draws, ttl_s, state, record=True)
        job_numbers += range(first, first + len(jobs_s))
        seen |= dict(zip(job_numbers, fates(piece), strict=True))
        job_numbers = [number for number in job_numbers if seen[number].decision == WAITING]
        state, left, delay_s = piece.end, left + piece.left, delay_s + piece.total_delay_s
    assert same([seen[number] for number in range(len(history.jobs_s))], fates(whole))
    assert (state, left) == (whole.end, whole.left)
    assert delay_s == pytest.approx(whole.total_delay_s)


def pieces(history: History, cuts_s: list[float]) -> Iterator[tuple[list[float], list[float], list[float], int]]:
    jobs_s = np.array(history.jobs_s)
    for after_s, until_s in pairwise(cuts_s):
        first, last = np.searchsorted(jobs_s, [after_s, until_s], side="right")
        spots_s = [at_s for at_s in history.spots_s if after_s < at_s <= until_s]
        yield history.jobs_s[first:last], spots_s, history.draws[first:last], int(first)


@given(rules, histories(), lives)
def test_every_job_has_one_end_and_every_spot_one_use(rule: Rule, history: History, ttl_s: float) -> None:
    outcome = replay(rule, *history, ttl_s, record=True)
    counts = {key: len(list(group)) for key, group in groupby(sorted(f.decision for f in fates(outcome)))}
    assert outcome.spot == counts.get(SPOT, 0)
    assert outcome.on_demand == counts.get(REFUSED, 0) + counts.get(LEFT, 0)
    assert len(outcome.end.waiting_since_s) == counts.get(WAITING, 0)
    assert outcome.arrivals == outcome.left + len(outcome.end.waiting_since_s)
    assert outcome.spots - outcome.idle_spots <= outcome.spot <= outcome.spots
    waits = [fate.delay_s for fate in fates(outcome) if fate.decision != WAITING]
    assert outcome.total_delay_s == pytest.approx(sum(waits))
    assert all(0.0 <= wait_s <= rule.longest_wait_s for wait_s in waits)


@pytest.mark.parametrize(
    ("rule", "jobs_s", "spots_s", "expected"),
    [
        # a spot before a job of the same moment: used up or gone, and the gap's age is 0
        (Rule(1.0), [1.0], [1.0], [Fate(WAITING, math.nan)]),
        (Rule(1.0), [1.0, 2.0], [2.0], [Fate(SPOT, 1.0), Fate(WAITING, math.nan)]),
        (Rule(1.0, admit_until_age_s=0.5), [3.0], [3.0], [Fate(WAITING, math.nan)]),
        # a spot before the end of a wait, of either kind
        (Rule(1.0, longest_wait_s=2.0), [1.0], [3.0], [Fate(SPOT, 2.0)]),
        (Rule(1.0, leave_at_age_s=3.0), [1.0], [3.0], [Fate(SPOT, 2.0)]),
        # the end of a wait before a job: the job finds the place free
        (Rule(1.0, longest_wait_s=2.0), [1.0, 3.0], [3.5], [Fate(LEFT, 2.0), Fate(SPOT, 0.5)]),
        (Rule(1.0, leave_at_age_s=3.0), [1.0, 3.0], [3.5], [Fate(LEFT, 2.0), Fate(SPOT, 0.5)]),
        # who was admitted at the age of leaving, or later, waits for the next spot and then leaves with its gap
        (Rule(2.0, leave_at_age_s=1.0), [1.0, 1.5], [9.0, 11.0], [Fate(SPOT, 8.0), Fate(LEFT, 8.5)]),
        # the ages [1, 2) admit nobody
        (
            Rule(9.0, 1.0, 2.0),
            [0.5, 1.0, 1.5, 2.0],
            [],
            [Fate(WAITING, math.nan), Fate(REFUSED, 0.0)] * 1 + [Fate(REFUSED, 0.0), Fate(WAITING, math.nan)],
        ),
    ],
)
def test_ties_and_ages_have_a_rule(rule: Rule, jobs_s: list[float], spots_s: list[float], expected: list[Fate]) -> None:
    outcome = replay(rule, jobs_s, spots_s, [0.0] * len(jobs_s), record=True)
    assert same(fates(outcome), expected)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="level = -1"):
        Rule(-1.0)
    with pytest.raises(ValueError, match="longest_wait_s = nan"):
        replace(Rule(1.0), longest_wait_s=math.nan)
    with pytest.raises(ValueError, match="1 draws for 2 jobs"):
        replay(Rule(1.0), [1.0, 2.0], [], [0.0])
    with pytest.raises(ValueError, match="offer_ttl_s -1"):
        replay(Rule(1.0), [1.0], [], [0.0], -1.0)
    with pytest.raises(ValueError, match="job times go backwards"):
        replay(Rule(1.0), [2.0, 1.0], [], [0.0, 0.0])
    with pytest.raises(ValueError, match="spot times go backwards"):
        replay(Rule(1.0), [], [1.0], [], math.inf, QueueState(standing_since_s=(2.0,)))
