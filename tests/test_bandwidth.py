"""Available bandwidth: reserve, measured research, delivery, promises; payload, never below 0."""

import math

import pytest

from controller.core.network.bandwidth import LinkBandwidth, bottleneck
from topologies.spec import DirectedLink, ResearchReserve
from topologies.units import PAYLOAD_SHARE

ACCESS, TRUNK, DOWN = DirectedLink("h1", "sw"), DirectedLink("sw", "core"), DirectedLink("sw", "h1")
CAPACITY = {ACCESS: 100.0, TRUNK: 1000.0, DOWN: 100.0}
RESERVE = ResearchReserve(beta=0.3)


def links(**options: object) -> LinkBandwidth:
    return LinkBandwidth(CAPACITY, RESERVE, **options)  # type: ignore[arg-type]


def test_told_research_below_the_reserve_costs_nothing_more() -> None:
    told = links()
    told.tell({ACCESS: 10.0})
    assert told.available(ACCESS, 1.0) == links().available(ACCESS, 1.0)


def test_told_research_above_the_reserve_loses_what_it_may_and_no_more() -> None:
    told = links()
    told.tell({ACCESS: 60.0})
    assert told.available(ACCESS, 1.0) == pytest.approx((100.0 - 0.97 * 60.0) * PAYLOAD_SHARE)
    assert told.available(DOWN, 1.0) == pytest.approx(70.0 * PAYLOAD_SHARE)
    spared = LinkBandwidth(CAPACITY, ResearchReserve(beta=0.3, most_lost=0.0))
    spared.tell({ACCESS: 60.0})
    assert spared.available(ACCESS, 1.0) == pytest.approx(40.0 * PAYLOAD_SHARE)


@pytest.mark.parametrize(
    ("asked", "kept"), [(0.0, 0.0), (10.0, 10.0), (30.0, 30.0), (30.5, 30.0), (60.0, 58.2), (1e9, 97.0)]
)
def test_an_account_that_lends_keeps_what_research_asks_for_of_its_reserve(asked: float, kept: float) -> None:
    lending, column = links(lends=True), LinkBandwidth(CAPACITY, RESERVE, lends=True)
    assert lending.available(ACCESS, 0.0) == pytest.approx(100.0 * PAYLOAD_SHARE)
    for account in (lending, column):
        account.tell({ACCESS: asked})
    left = (100.0 - kept) * PAYLOAD_SHARE
    assert lending.available(ACCESS, 1.0) == pytest.approx(left)
    assert column.available_column(1.0)[column.network.number[ACCESS]] == pytest.approx(left)
    assert column.available_column(1.0)[column.network.number[DOWN]] == pytest.approx(100.0 * PAYLOAD_SHARE)
    column.change({ACCESS: 50.0})  # told of more than it carries now, research asks for all of it
    least = 50.0 - max(min(asked, 15.0), 0.97 * min(asked, 50.0))
    assert column.available_column(2.0)[column.network.number[ACCESS]] == pytest.approx(least * PAYLOAD_SHARE)
    assert column.share(DOWN) == pytest.approx(100.0 * PAYLOAD_SHARE)


@pytest.mark.parametrize(("asked", "most_lost"), [(31.0, 0.5), (100.0, 0.71), (50.0, 1.0)])
def test_whatever_research_may_lose_its_reserve_is_kept(asked: float, most_lost: float) -> None:
    told = LinkBandwidth(CAPACITY, ResearchReserve(beta=0.3, most_lost=most_lost))
    told.tell({ACCESS: asked})
    assert told.available(ACCESS, 1.0) == pytest.approx(70.0 * PAYLOAD_SHARE)


def test_transfers_that_got_less_than_their_grant_lower_the_answer_for_their_link_only() -> None:
    measured = links()
    for share in (0.98, 0.97, 0.5, 0.99):
        measured.delivered(ACCESS, share, 0.0)
    measured.delivered(None, 0.1, 0.0)
    assert measured.available(ACCESS, 1.0) == pytest.approx(0.5 * links().available(ACCESS, 1.0))
    assert measured.available(TRUNK, 1.0) == links().available(TRUNK, 1.0)


def test_a_bad_transfer_is_forgotten_in_time() -> None:
    measured = links(memory_s=60.0)
    measured.delivered(ACCESS, 0.01, 0.0)
    assert measured.delivery(ACCESS, 59.0) == 0.01
    assert measured.delivery(ACCESS, 60.0) == 1.0


def test_the_bottleneck_is_the_least_link_and_is_named() -> None:
    available = {link: links().available(link, 0.0) for link in CAPACITY}
    assert bottleneck((ACCESS, TRUNK), available).link == ACCESS
    assert bottleneck((ACCESS, TRUNK), available).bytes_per_s == available[ACCESS]
    assert bottleneck((), available).bytes_per_s == math.inf
    assert bottleneck((), available).link is None


def test_the_column_of_all_links_has_what_each_link_answers() -> None:
    measured = links()
    measured.tell({TRUNK: 400.0})
    measured.delivered(DOWN, 0.5, 0.0)
    committed = {TRUNK: 40.0, DOWN: 1e9}
    asked = {link: measured.available(link, 1.0, committed.get(link, 0.0)) for link in CAPACITY}
    column = measured.available_column(1.0, measured.network.column({ACCESS: 0.0, **committed}))
    assert measured.network.mapping(column) == asked
    assert asked[DOWN] == 0.0 < asked[TRUNK]
