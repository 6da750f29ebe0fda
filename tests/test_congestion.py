"""What one more job on an uplink adds to the loss of a reclaim: against counting everybody's loss before and after."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.placement.congestion import Streams, added_loss_s, loss_at_reclaim_s
from controller.numerics.arrays import Floats

BETA = 0.2


def streams(host: list[int], payload: list[float], aim_s: list[float], remaining_s: list[float]) -> Streams:
    columns = (np.array(column, dtype=float) for column in (payload, aim_s, remaining_s))
    return Streams(np.ones(len(host), dtype=bool), np.array(host, dtype=np.intp), *columns)


def alone(payload: float, rate: float, aim_s: float) -> float:
    return payload / rate + max(aim_s, payload / rate / BETA) / 2.0


def test_of_equal_jobs_it_is_the_marginal_congestion_of_pigou() -> None:
    payload, rate, aim_s = 3.2e9, 80e6, 600.0

    def all_lose(count: int) -> float:
        return count * alone(count * payload, rate, aim_s)

    for count in range(5):
        there = streams([0] * count, [payload] * count, [aim_s] * count, [1e4] * count)
        rates = np.array([rate])
        [added] = added_loss_s(rates, rates, there, payload, np.array([aim_s]), 1e4, BETA)
        assert added == pytest.approx(all_lose(count + 1) - all_lose(count))


jobs = st.lists(
    st.tuples(st.integers(0, 2), st.floats(1e8, 5e10), st.floats(10.0, 5e3), st.floats(1.0, 1e5)), max_size=8
)


@settings(max_examples=100, deadline=None)
@given(jobs, st.floats(1e8, 5e10), st.floats(10.0, 5e3), st.floats(1.0, 1e5))
def test_it_is_what_all_lose_after_less_what_they_lost_before_while_they_are_there_together(
    there: list[tuple[int, float, float, float]], payload: float, aim_s: float, remaining_s: float
) -> None:
    rates = np.array([1e7, 9e7, 1e9])
    columns = streams(*([list(column) for column in zip(*there, strict=True)] if there else [[], [], [], []]))
    found = added_loss_s(rates, rates, columns, payload, np.full(3, aim_s), remaining_s, BETA)
    for host, rate in enumerate(rates):
        here = [job for job in there if job[0] == host]
        before = sum(job[1] for job in here)
        expected = alone(before + payload, rate, aim_s)
        for _, _, others_aim_s, others_s in here:
            more_s = alone(before + payload, rate, others_aim_s) - alone(before, rate, others_aim_s)
            expected += min(1.0, others_s / remaining_s) * more_s
        assert found[host] == pytest.approx(expected)


def test_a_job_whose_way_is_narrow_further_on_loses_what_that_way_makes_it_lose() -> None:
    nobody = streams([], [], [], [])
    uplinks, ways = np.array([1e8, 1e8, 1e8]), np.array([1e8, 1e7, 0.0])
    aims = np.full(3, 600.0)
    wide, narrow, cut = added_loss_s(uplinks, ways, nobody, 1e10, aims, 1e4, BETA)
    assert wide == pytest.approx(alone(1e10, 1e8, 600.0))
    assert narrow == pytest.approx(alone(1e10, 1e7, 600.0))
    assert np.isinf(cut)


def test_intervals_are_what_p1_aims_at_until_sending_fills_its_share_of_them() -> None:
    times: Floats = np.array([1.0, 100.0, 120.0, 240.0])
    assert loss_at_reclaim_s(times, 600.0, BETA).tolist() == [301.0, 400.0, 420.0, 840.0]
