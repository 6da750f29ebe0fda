"""Ticks: when the coordinator looks at everything again, though no event made it."""

from itertools import pairwise

import pytest

from controller.core.ticks import MIN_NEWS, TICKS_A_DAY
from tests.world import PROTOCOL, World, a_running_job, a_world, job

PERIOD_S, HOUR_S = PROTOCOL.control_period_s, PROTOCOL.day_s / TICKS_A_DAY


def ticks(world: World, until_s: float) -> list[float]:
    """Run until then; return the times of the ticks."""
    times_s = []
    while (tick_s := world.coordinator._ticks.next_s) <= until_s:
        world.run(tick_s)
        times_s.append(tick_s)
        assert world.coordinator._ticks.next_s > tick_s
    world.run(until_s)
    return times_s


def test_a_campus_on_which_nothing_happens_has_a_tick_an_hour_and_more_at_the_beginning() -> None:
    world = a_world(quiet=True)
    world.run(1.0)
    times_s = ticks(world, 2000.0)
    for before_s, tick_s in pairwise(times_s):
        spare_s = tick_s - before_s - min(HOUR_S, MIN_NEWS * before_s)
        assert -1e-6 < spare_s < PERIOD_S + 1e-6
        assert (tick_s - times_s[0]) / PERIOD_S == pytest.approx(round((tick_s - times_s[0]) / PERIOD_S), abs=1e-6)
    assert times_s[-1] - times_s[-2] >= HOUR_S


@pytest.mark.parametrize("jobs", [1, 4])
def test_a_change_brings_a_tick_where_a_job_waits(jobs: int) -> None:
    world = a_world(2, 0, quiet=True)
    for number in range(jobs):
        world.submit(job(f"j{number}", steps=50_000))
    world.run(2000.0)
    waiting, asked_s = len(world.coordinator.cluster.queue), world.coordinator._ticks.next_s
    assert asked_s > world.now_s + PERIOD_S
    world.reclaim(min({"h1", "h2"} - {world.jobs["j0"].host}), 0.0)
    world.run(2000.0 + 0.5 * PERIOD_S)
    assert (world.coordinator._ticks.next_s < asked_s) is (waiting > 0)
    assert (world.coordinator._ticks.next_s <= world.now_s + PERIOD_S) is (waiting > 0) is (jobs > 1)


def test_a_tick_follows_a_checkpoint_of_another_size() -> None:
    world = a_world(quiet=True)
    a_running_job(world, job("a", steps=50_000, params={"dirty_fraction": 0.001}), 4.0)
    seen = set[float]()
    while len(seen) < 2:
        world.run(world.now_s + 0.25)
        if (sent_bytes := world.jobs["a"].stream.sent_bytes) is not None and sent_bytes not in seen:
            seen.add(sent_bytes)
            assert world.coordinator._ticks.next_s <= world.now_s + PERIOD_S
    assert min(seen) < 0.9 * max(seen)
