"""The spot queue: admission by r = N + p, offers and their lives, interrupted jobs, and Algorithm 1."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.queueing.controllers.controller import Algorithm1, Controller, next_level
from controller.core.queueing.queue import Dispatch, Offer, OnDemand, Queued, SpotJob, SpotQueue
from controller.core.queueing.replay import Rule


def job(key: str, memory: float = 0.0) -> SpotJob:
    return SpotJob(key, memory)


def waiting(*keys: str, ttl_s: float = 0.0, level: float = 8.0) -> SpotQueue:
    """A queue in which these jobs were submitted at 0, 1, 2..."""
    queue = SpotQueue(Controller(Rule(level)), ttl_s)
    for at_s, key in enumerate(keys):
        assert queue.submit(job(key), float(at_s), 0.0) == Queued(at_s)
    return queue


def test_an_offer_passes_over_jobs_that_do_not_fit() -> None:
    queue = SpotQueue(Controller(Rule(8.0)), 0.0)
    queue.submit(job("large", 48e9), 0.0, 0.0)
    queue.submit(job("small", 10e9), 1.0, 0.0)
    assert queue.offer(1, 5.0, memory_bytes=24e9) == Dispatch("small", 1, 4.0, True)
    assert queue.waiting() == ["large"]
    assert Offer(2, capability=7.5).suits(SpotJob("new", 0.0, 8.0)) is False


def test_before_the_first_offer_the_gap_counts_from_the_first_job_that_had_to_wait() -> None:
    queue = SpotQueue(Controller(Rule(8.0, leave_at_age_s=5.0)), 0.0)
    queue.submit(job("a"), 1e6, 0.0)
    assert queue.next_deadline_s() == 1e6 + 5.0


def test_the_controller_is_told_of_offers_arrivals_and_delays_and_no_interrupted_job_leaves() -> None:
    told: list[tuple[str, float]] = []

    class Listener(Controller):
        def arrived(self, now_s: float = 0.0) -> None:
            told.append(("arrived", now_s))

        def spot(self, now_s: float = 0.0) -> None:
            told.append(("spot", now_s))

        def lost(self, made_s: float) -> None:
            told.append(("lost", made_s))

        def left(self, delay_s: float) -> None:
            told.append(("left", delay_s))

    queue = SpotQueue(Listener(Rule(1.0, longest_wait_s=9.0)), 0.5)
    queue.offer(1, 1.0)
    queue.withdraw_offer(1)
    queue.submit(job("a"), 2.0, 0.0)
    queue.submit(job("b"), 3.0, 0.0)
    queue.requeue_at_head(job("back"), 4.0)
    assert [left.job for left in queue.renege(11.0) + queue.renege(99.0)] == ["a"]
    queue.offer(2, 99.0)
    submitted = [("arrived", 2.0), ("left", 0.0), ("arrived", 3.0), ("left", 9.0)]
    assert told == [("spot", 1.0), ("lost", 1.0), *submitted, ("spot", 99.0), ("lost", 99.0)]
    assert (queue.statistics.on_demand, queue.statistics.mean_delay_s) == (2, 4.5)


def test_an_offer_lapses_when_its_time_is_over_and_not_before() -> None:
    queue = SpotQueue(Controller(Rule(8.0)), 10.0)
    queue.offer(1, 0.0)
    queue.offer(2, 4.0)
    assert queue.expire(9.999) == []
    assert queue.submit(job("late"), 10.0, 0.0) == Dispatch("late", 2, 0.0, True)  # 1 is over, if still listed
    assert [offer.offer_id for offer in queue.expire(10.0)] == [1]


def test_a_withdrawn_offer_is_not_used() -> None:
    queue = SpotQueue(Controller(Rule(8.0)))
    queue.offer(1, 0.0)
    assert queue.withdraw_offer(1)
    assert not queue.withdraw_offer(1)
    assert queue.submit(job("a"), 1.0, 0.0) == Queued(0)


def test_the_caller_may_choose_among_standing_offers_that_suit_or_refuse_them_all() -> None:
    seen: list[list[int]] = []

    def newest(_: SpotJob, offers: list[Offer] | tuple[Offer, ...]) -> int | None:
        seen.append([offer.offer_id for offer in offers])
        return offers[-1].offer_id if len(offers) > 1 else None

    queue = SpotQueue(Controller(Rule(8.0)), choose=newest)  # type: ignore[arg-type]
    for offer_id, memory in ((1, 1e9), (2, 24e9), (3, 24e9)):
        queue.offer(offer_id, 0.0, memory)
    assert queue.submit(job("a", 20e9), 0.0, 0.0) == Dispatch("a", 3, 0.0, True)
    assert queue.submit(job("b", 20e9), 0.0, 0.0) == Queued(0)
    assert seen == [[2, 3], [2]]


def test_an_interrupted_job_is_served_before_all_that_never_ran() -> None:
    queue = waiting("a", "b")
    queue.offer(1, 5.0)
    assert queue.requeue_at_head(job("a"), 7.0) == Queued(0)
    assert queue.requeue_at_head(job("x"), 8.0) == Queued(1)
    assert queue.waiting() == ["a", "x", "b"]
    assert queue.offer(2, 9.0) == Dispatch("a", 2, 2.0, False)


def test_an_interrupted_job_is_served_first_by_an_offer_that_was_no_good_before() -> None:
    free = {1: 0}
    queue = SpotQueue(Controller(Rule(8.0)), gpus_behind=lambda offer: free[offer.offer_id])
    queue.submit(SpotJob("fresh", gpus=2), 0.0, 0.0)
    queue.requeue_at_head(SpotJob("back", gpus=2), 1.0)
    queue.offer(1, 2.0)
    free[1] = 2
    assert queue.serve(3.0) == Dispatch("back", 1, 2.0, False)


@pytest.mark.parametrize("draw", [-0.1, 1.0, math.nan])
def test_a_draw_outside_its_range_is_refused(draw: float) -> None:
    with pytest.raises(ValueError, match="draw"):
        waiting().submit(job("a"), 0.0, draw)


def test_the_same_job_or_offer_twice_is_refused() -> None:
    queue = waiting("a", ttl_s=math.inf)
    with pytest.raises(ValueError, match="job a waits already"):
        queue.submit(job("a"), 1.0, 0.0)
    with pytest.raises(ValueError, match="job a waits already"):
        queue.requeue_at_head(job("a"), 1.0)
    queue.offer(1, 2.0)
    queue.offer(2, 2.0)
    with pytest.raises(ValueError, match="offer 2 stands already"):
        queue.offer(2, 3.0)


actions = st.lists(
    st.tuples(st.sampled_from(["submit", "offer", "return", "expire"]), st.floats(0.0, 5.0), st.floats(0.0, 0.99)),
    max_size=60,
)


@given(actions, st.sampled_from([0.0, 3.0, math.inf]), st.floats(0.0, 4.0))
def test_no_job_is_lost_or_runs_twice_and_no_offer_is_used_twice(
    story: list[tuple[str, float, float]], ttl_s: float, level: float
) -> None:
    queue, now_s, number = SpotQueue(Controller(Rule(level)), ttl_s), 0.0, 0
    outside: set[str] = set()
    running: list[str] = []
    used: list[int] = []
    for action, pause_s, draw in story:
        now_s, number = now_s + pause_s, number + 1
        answer: object = None
        if action == "submit":
            answer = queue.submit(job(f"j{number}"), now_s, draw)
            outside |= {f"j{number}"} if isinstance(answer, OnDemand) else set()
        elif action == "offer":
            answer = queue.offer(number, now_s)
        elif action == "return" and running:
            answer = queue.requeue_at_head(job(running.pop()), now_s)
        else:
            assert all(offer.offer_id not in used for offer in queue.expire(now_s))
        if isinstance(answer, Dispatch):
            assert answer.job not in running
            assert answer.offer_id not in used
            running.append(answer.job)
            used.append(answer.offer_id)
        submitted = queue.statistics.arrivals
        assert len(outside) + len(running) + len(queue) == submitted
        assert len(set(queue.waiting())) == len(queue)
        assert not (queue.waiting() and any(o.expires_s > now_s for o in queue.standing()))


def test_the_level_moves_against_the_error_by_a_fixed_step_inside_its_bounds() -> None:
    assert next_level(2.0, 27.0, 27.0, 0.01, 8.0) == 2.0
    assert next_level(2.0, 30.0, 27.0, 0.01, 8.0) == pytest.approx(1.97)
    assert next_level(0.1, 9.0, 3.0, 0.05, 8.0) == 0.0
    assert next_level(7.9, 0.0, 30.0, 0.05, 8.0) == 8.0


def test_algorithm_1_averages_over_the_jobs_that_left_during_a_window_of_arrivals() -> None:
    learner = Algorithm1(target_delay_s=4.0, step_per_s=0.1, window=3, r0=2.0)
    for delay_s in (9.0, 0.0, 6.0):
        assert learner.level == 2.0
        learner.left(delay_s)
        learner.arrived(0.0)
    assert learner.level == pytest.approx(2.0 - 0.1 * (5.0 - 4.0))


@pytest.mark.parametrize(
    "wrong", [{"window": 0}, {"r0": 9.0}, {"r_max": math.inf}, {"step_per_s": 0.0}, {"target_delay_s": -1.0}]
)
def test_parameters_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    right = {"target_delay_s": 3.0, "step_per_s": 0.01}
    with pytest.raises(ValueError, match=r"window|step|target"):
        Algorithm1(**{**right, **wrong})  # type: ignore[arg-type]
