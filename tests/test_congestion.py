"""What one more job on an uplink adds to the loss of a reclaim: against counting everybody's loss before and after."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.lifecycle import candidates
from controller.core.placement.congestion import Streams, added_loss_s, loss_at_reclaim_s
from controller.numerics.arrays import Floats
from testbed.messages import JobSpec
from tests.cores_world import PROTOCOL, QUEUE, CoresWorld, a_running_job, small_campus

BETA = 0.2


def streams(
    host: list[int], payload: list[float], aim_s: list[float], remaining_s: list[float], hurt: list[float]
) -> Streams:
    columns = (np.array(column, dtype=float) for column in (payload, aim_s, remaining_s, hurt))
    return Streams(np.ones(len(host), dtype=bool), np.array(host, dtype=np.intp), *columns)


def alone(payload: float, rate: float, aim_s: float) -> float:
    return payload / rate + max(aim_s, payload / rate / BETA) / 2.0


def test_of_equal_jobs_it_is_the_marginal_congestion_of_pigou() -> None:
    payload, rate, aim_s = 3.2e9, 80e6, 600.0

    def all_lose(count: int) -> float:
        return count * alone(count * payload, rate, aim_s)

    for count in range(5):
        there = streams([0] * count, [payload] * count, [aim_s] * count, [1e4] * count, [0.5] * count)
        rates = np.array([rate])
        [added] = added_loss_s(rates, rates, there, payload, np.array([aim_s]), 1e4, np.array([0.5]), BETA)
        assert added == pytest.approx(0.5 * (all_lose(count + 1) - all_lose(count)))


jobs = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.floats(1e8, 5e10),
        st.floats(10.0, 5e3),
        st.floats(1.0, 1e5),
        st.floats(0.0, 1.0),
    ),
    max_size=8,
)


@given(jobs, st.floats(1e8, 5e10), st.floats(10.0, 5e3), st.floats(1.0, 1e5), st.floats(0.01, 1.0))
def test_it_is_what_all_lose_after_less_what_they_lost_before_while_they_are_there_together(
    there: list[tuple[int, float, float, float, float]],
    payload: float,
    aim_s: float,
    remaining_s: float,
    hurt: float,
) -> None:
    """Each as often as a notice is too short for it."""
    rates = np.array([1e7, 9e7, 1e9])
    columns = streams(*([list(column) for column in zip(*there, strict=True)] if there else [[]] * 5))
    aims_s, hurts = np.full(3, aim_s), np.full(3, hurt)
    found = added_loss_s(rates, rates, columns, payload, aims_s, remaining_s, hurts, BETA)
    for host, rate in enumerate(rates):
        here = [job for job in there if job[0] == host]
        before = sum(job[1] for job in here)
        expected = hurt * alone(before + payload, rate, aim_s)
        for _, _, others_aim_s, others_s, others_hurt in here:
            more_s = alone(before + payload, rate, others_aim_s) - alone(before, rate, others_aim_s)
            expected += others_hurt * min(1.0, others_s / remaining_s) * more_s
        assert found[host] == pytest.approx(expected)


def test_a_job_whose_way_is_narrow_further_on_loses_what_that_way_makes_it_lose() -> None:
    nobody = streams([], [], [], [], [])
    uplinks, ways = np.array([1e8, 1e8, 1e8]), np.array([1e8, 1e7, 0.0])
    aims = np.full(3, 600.0)
    wide, narrow, cut = added_loss_s(uplinks, ways, nobody, 1e10, aims, 1e4, np.ones(3), BETA)
    assert wide == pytest.approx(alone(1e10, 1e8, 600.0))
    assert narrow == pytest.approx(alone(1e10, 1e7, 600.0))
    assert np.isinf(cut)


def test_intervals_are_what_p1_aims_at_until_sending_fills_its_share_of_them() -> None:
    times: Floats = np.array([1.0, 100.0, 120.0, 240.0])
    assert loss_at_reclaim_s(times, 600.0, BETA).tolist() == [301.0, 400.0, 420.0, 840.0]


def test_a_notice_that_is_too_short_for_a_neighbour_alone_hurts_that_one_alone() -> None:
    world = CoresWorld(small_campus(), PROTOCOL, replace(QUEUE, level_start=3.0))
    world.start()
    world.run(0.5)
    host = a_running_job(world, JobSpec("large", 40_000, 0.1, 200_000_000))
    a_running_job(world, JobSpec("small", 40_000, 0.1, 20_000_000), 8.0)
    core = world.coordinator.cluster
    for _ in range(500):
        core.hazards.notices.departed(core.now_s, 10.0)  # enough for the small one
    levels, _ = core.hazard_levels(core.now_s)
    place = core.index.places.number[host]
    longer_s = (
        20_000_000 / core.checkpoint_uplinks_bytes_per_s[place]
    )  # that a checkpoint of the large one then takes
    assert candidates.added_loss_s(core, core.jobs["small"], levels)[place] > longer_s
