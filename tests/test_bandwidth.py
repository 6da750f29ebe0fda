"""Available bandwidth: reserve, measured research, delivery, promises; payload, never below 0."""

import math

import numpy as np
import pytest

from controller.core.network.links import LEAST_FALL, MEMORY_S, LinkCapacity, PathCache
from topologies.paths import Routes
from topologies.presets import three_tier
from topologies.spec import DirectedLink, ResearchReserve
from topologies.units import PAYLOAD_SHARE

ACCESS, TRUNK, DOWN = DirectedLink("h1", "sw"), DirectedLink("sw", "core"), DirectedLink("sw", "h1")
CAPACITY = {ACCESS: 100.0, TRUNK: 1000.0, DOWN: 100.0}


def links(most_lost: float = 0.03, *, borrows: bool = False) -> LinkCapacity:
    return LinkCapacity(CAPACITY, ResearchReserve(beta=0.3, most_lost=most_lost), borrows=borrows)


def free(capacity: LinkCapacity, link: DirectedLink, now_s: float = 1.0, *, for_checkpoints: bool = False) -> float:
    column = capacity.free(now_s, for_checkpoints=for_checkpoints)
    return float(column[capacity.network.number[link]])


def test_measured_research_below_the_reserve_costs_nothing_more() -> None:
    measured = links()
    measured.measured({ACCESS: 10.0})
    assert free(measured, ACCESS) == free(links(), ACCESS) == pytest.approx(70.0 * PAYLOAD_SHARE)


def test_measured_research_above_the_reserve_loses_what_it_may_and_no_more() -> None:
    measured, spared = links(), links(most_lost=0.0)
    for capacity in (measured, spared):
        capacity.measured({ACCESS: 60.0})
    assert free(measured, ACCESS) == pytest.approx((100.0 - 0.97 * 60.0) * PAYLOAD_SHARE)
    assert free(measured, DOWN) == pytest.approx(70.0 * PAYLOAD_SHARE)
    assert free(spared, ACCESS) == pytest.approx(40.0 * PAYLOAD_SHARE)


@pytest.mark.parametrize(
    ("asked", "kept"), [(0.0, 0.0), (10.0, 10.0), (30.0, 30.0), (30.5, 30.0), (60.0, 58.2), (1e9, 97.0)]
)
def test_checkpoints_that_borrow_leave_what_research_asks_for_of_its_reserve(asked: float, kept: float) -> None:
    lending = links(borrows=True)
    assert free(lending, ACCESS, for_checkpoints=True) == pytest.approx(100.0 * PAYLOAD_SHARE)
    lending.measured({ACCESS: asked})
    assert free(lending, ACCESS, for_checkpoints=True) == pytest.approx((100.0 - kept) * PAYLOAD_SHARE)
    assert free(lending, ACCESS) == pytest.approx((100.0 - max(30.0, kept)) * PAYLOAD_SHARE)
    assert free(lending, DOWN, for_checkpoints=True) == pytest.approx(100.0 * PAYLOAD_SHARE)
    lending.changed({ACCESS: 50.0})  # measured to ask for more than it carries now, research asks for all of it
    least = 50.0 - max(min(asked, 15.0), 0.97 * min(asked, 50.0))
    assert free(lending, ACCESS, for_checkpoints=True) == pytest.approx(least * PAYLOAD_SHARE)


def test_transfers_that_got_less_than_their_grant_lower_the_answer_for_their_link_only() -> None:
    measured = links()
    for share in (0.98, 0.97, 0.5, 0.99):
        measured.delivered(str(ACCESS), share, 0.0)
    assert free(measured, ACCESS) == pytest.approx(0.5 * free(links(), ACCESS))
    assert free(measured, TRUNK) == free(links(), TRUNK)
    for _ in range(7):
        measured.delivered(str(ACCESS), 1.0, 0.0)
    assert free(measured, ACCESS) == pytest.approx(0.97 * free(links(), ACCESS)), "one of eleven is an exception"


def test_a_bad_transfer_is_forgotten_in_time_or_with_its_cable() -> None:
    measured = links()
    for link in (ACCESS, DOWN):
        measured.delivered(str(link), 0.01, 0.0)
    measured.changed({DOWN: 100.0})
    assert free(measured, DOWN, 1.0) == free(links(), DOWN)
    assert free(measured, ACCESS, MEMORY_S - 1.0) == pytest.approx(0.01 * free(links(), ACCESS))
    assert free(measured, ACCESS, MEMORY_S) == free(links(), ACCESS)


def test_what_is_committed_is_taken_off_and_nothing_is_below_0() -> None:
    capacity = links()
    committed = capacity.network.column({ACCESS: 0.0, TRUNK: 40.0, DOWN: 1e9})
    found = capacity.free(1.0) - capacity.free(1.0, committed)
    assert found[capacity.network.number[TRUNK]] == pytest.approx(40.0)
    assert capacity.free(1.0, committed)[capacity.network.number[DOWN]] == 0.0


def test_nothing_is_reserved_on_a_trunk_that_drains_and_what_is_granted_there_stays() -> None:
    capacity = links(borrows=True)
    whole = dict(capacity.reservable)
    assert whole[TRUNK] == pytest.approx(capacity.share[TRUNK] * (1.0 - LEAST_FALL))
    capacity.drain(frozenset({frozenset(TRUNK)}))
    number = capacity.network.number[TRUNK]
    assert capacity.reservable == {**whole, TRUNK: 0.0} == capacity.spendable
    assert capacity.given_column[number] == whole[TRUNK]
    assert capacity.checkpoint_column[number] == 0.0 < capacity.lent_column[number]


def test_the_rate_of_a_path_is_that_of_its_least_link() -> None:
    campus = three_tier(4, 2, 0)
    capacity, routes = (LinkCapacity(campus.capacity_bytes_per_s, ResearchReserve(), borrows=False), Routes(campus))
    rates = np.arange(1.0, 1.0 + len(capacity.network.links))
    paths = PathCache(capacity.network, routes, 1)
    numbers = [capacity.network.number[link] for link in routes.route("h1", "h4")]
    assert paths.rate("h1", "h4", rates) == min(rates[numbers])
    assert paths.rate("h1", "h1", rates) == math.inf
