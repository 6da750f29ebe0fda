"""Available bandwidth: reserve, measured research, delivery, promises; payload, never below 0."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.network.bandwidth import (
    PAYLOAD_SHARE,
    Batch,
    LinkBandwidth,
    bottleneck,
    mean_and_variance,
)
from topologies.spec import DirectedLink, ResearchReserve

ACCESS, TRUNK, DOWN = DirectedLink("h1", "sw"), DirectedLink("sw", "core"), DirectedLink("sw", "h1")
CAPACITY = {ACCESS: 100.0, TRUNK: 1000.0, DOWN: 100.0}
RESERVE = ResearchReserve(beta=0.3)


def links(**options: object) -> LinkBandwidth:
    return LinkBandwidth(CAPACITY, RESERVE, **options)  # type: ignore[arg-type]


def test_an_unused_link_still_keeps_the_reserve_and_answers_in_payload() -> None:
    assert links().available(ACCESS, 0.0) == pytest.approx(70.0 * 1448 / 1514)


def test_research_below_the_reserve_costs_nothing_more() -> None:
    measured = links()
    measured.observe("h1", 0.0, [10.0] * 10)
    assert measured.available(ACCESS, 1.0) == links().available(ACCESS, 1.0)


def test_research_above_the_reserve_is_left_alone() -> None:
    measured = links()
    measured.observe("h1", 0.0, [60.0] * 10)
    assert measured.available(ACCESS, 1.0) == pytest.approx(40.0 * PAYLOAD_SHARE)
    assert measured.available(DOWN, 1.0) == pytest.approx(70.0 * PAYLOAD_SHARE)


def test_fluctuating_research_counts_for_more_than_its_mean() -> None:
    steady, bursty = links(), links()
    steady.observe("h1", 0.0, [50.0] * 10)
    bursty.observe("h1", 0.0, [30.0, 70.0] * 5)
    assert bursty.research_bytes_per_s(ACCESS, 0.0) == pytest.approx(50.0 + 1.645 * 20.0)
    assert steady.research_bytes_per_s(ACCESS, 0.0) == pytest.approx(50.0)


def test_samples_leave_with_the_window() -> None:
    measured = links(window_s=5.0)
    measured.observe("h1", 0.0, [90.0] * 10)
    assert measured.research_bytes_per_s(ACCESS, 4.9) == pytest.approx(90.0)
    assert measured.research_bytes_per_s(ACCESS, 5.0) == 0.0


def test_a_trunk_adds_the_means_and_variances_of_the_hosts_that_feed_it() -> None:
    fed = links(feeds={TRUNK: ("h1", "h2")})
    fed.observe("h1", 0.0, [100.0, 300.0])
    fed.observe("h2", 0.0, [200.0, 200.0])
    assert fed.research_bytes_per_s(TRUNK, 0.0) == pytest.approx(400.0 + 1.645 * 100.0)


def test_research_is_never_taken_for_more_than_the_link() -> None:
    measured = links()
    measured.observe("h1", 0.0, [1e9])
    assert measured.available(ACCESS, 0.0) == 0.0


def test_promises_are_subtracted_but_nothing_is_below_zero() -> None:
    free = links().available(ACCESS, 0.0)
    assert links().available(ACCESS, 0.0, committed_bytes_per_s=20.0) == pytest.approx(free - 20.0)
    assert links().available(ACCESS, 0.0, committed_bytes_per_s=1e9) == 0.0


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


def test_goodput_above_the_grant_promises_nothing_more() -> None:
    measured = links()
    measured.delivered(ACCESS, 1.3, 0.0)
    assert measured.delivery(ACCESS, 0.0) == 1.0


def test_the_bottleneck_is_the_least_link_and_is_named() -> None:
    available = links().available_everywhere(0.0, {ACCESS: 1.0})
    assert bottleneck((ACCESS, TRUNK), available).link == ACCESS
    assert bottleneck((ACCESS, TRUNK), available).bytes_per_s == available[ACCESS]
    assert bottleneck((), available).bytes_per_s == math.inf
    assert bottleneck((), available).link is None


@given(st.lists(st.lists(st.floats(0.0, 1e9), min_size=1, max_size=12), min_size=1, max_size=6))
def test_merged_batches_have_the_moments_of_all_their_samples(batches: list[list[float]]) -> None:
    mean, variance = mean_and_variance(Batch.of(0.0, samples) for samples in batches)
    together = [x for samples in batches for x in samples]
    assert mean == pytest.approx(statistics.fmean(together), abs=1e-6)
    assert variance == pytest.approx(statistics.pvariance(together), rel=1e-6, abs=1e-3)


def test_the_column_of_all_links_has_what_each_link_answers() -> None:
    measured = links(feeds={TRUNK: ("h1", "h2"), ACCESS: ("h1",)})
    measured.observe("h1", 0.0, [300.0, 500.0])
    measured.observe("elsewhere", 0.0, [300.0])
    measured.delivered(DOWN, 0.5, 0.0)
    committed = {TRUNK: 40.0, DOWN: 1e9}
    asked = {link: measured.available(link, 1.0, committed.get(link, 0.0)) for link in CAPACITY}
    assert measured.available_everywhere(1.0, committed) == asked
    column = measured.available_column(1.0, measured.network.column({ACCESS: 0.0, **committed}))
    assert measured.network.mapping(column) == asked
    assert asked[DOWN] == 0.0 < asked[TRUNK]
