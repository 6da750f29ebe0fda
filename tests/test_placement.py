"""P2: feasible hosts, the least score, and the reason where no host is feasible."""

import math
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.placement import select as placement
from controller.core.placement.select import DestinationChoice, Missing, NoDestination, PlacementRequest, Selector
from controller.core.policies import baselines
from tests.offered_hosts import Candidate, over_hosts

ours, select_random = over_hosts(placement.select), over_hosts(placement.select_random)
select = over_hosts(partial(placement.select, as_printed=True))
select_standby = over_hosts(placement.select_standby)
select_first, select_elsewhere = over_hosts(baselines.select_first), over_hosts(baselines.select_elsewhere)

REQUEST = PlacementRequest(
    source="s",
    payload_bytes=1e9,
    memory_bytes=20e9,
    min_capability=8.0,
    remaining_s=3600.0,
    notice_s=60.0,
    restart_s=10.0,
    source_building="north",
)
GOOD = Candidate("a", "north", 1, 24e9, 8.6, 0.5, bandwidth_bytes_per_s=1e8, survival=0.9, mean_migration_s=30.0)


def chosen(answer: DestinationChoice | NoDestination) -> str:
    assert isinstance(answer, DestinationChoice), answer
    return answer.host


def test_the_score_is_seconds_there_plus_the_risk_of_seconds_away() -> None:
    answer = select(REQUEST, [GOOD])
    assert answer.score_s == pytest.approx(20.0 + 0.1 * 30.0)
    assert (answer.host, answer.migration_s, answer.survival) == ("a", 20.0, 0.9)


@pytest.mark.parametrize(
    ("lack", "reason", "shortfall"),
    [
        ({"free_gpus": 0}, Missing.GPU, 1.0),
        ({"memory_bytes": 16e9}, Missing.MEMORY, 4e9),
        ({"capability": 7.5}, Missing.CAPABILITY, 0.5),
        ({"load": 0.95}, Missing.LOAD, 0.05),
        ({"bandwidth_bytes_per_s": 0.0}, Missing.PATH, math.inf),
        ({"bandwidth_bytes_per_s": 1e7}, Missing.TIME, 50.0),
    ],
)
def test_nobody_fits_and_the_closest_miss_is_named(lack: dict[str, Any], reason: Missing, shortfall: float) -> None:
    missed = replace(GOOD, **lack)
    worse = replace(missed, host="0", memory_bytes=1.0, free_gpus=missed.free_gpus)
    answer = select(replace(REQUEST, max_load=0.9), [worse, missed])
    assert isinstance(answer, NoDestination)
    assert answer.reason is reason
    if reason is not Missing.GPU:  # all lack one GPU alike there
        assert answer.closest == "a"
    assert answer.shortfall == pytest.approx(shortfall)


def test_a_first_start_has_nothing_to_carry() -> None:
    start = replace(REQUEST, source=None, payload_bytes=0.0, notice_s=None)
    assert select(start, [replace(GOOD, bandwidth_bytes_per_s=0.0, survival=1.0)]) == DestinationChoice(
        "a", 10.0, 10.0, 1.0
    )


def test_the_second_form_distinguishes_hosts_that_no_job_survives_on() -> None:
    bad = replace(GOOD, host="a", survival=0.0, expected_reclaims=90.0)
    less_bad = replace(GOOD, host="b", survival=0.0, expected_reclaims=50.0)
    assert chosen(select(REQUEST, [bad, less_bad])) == "a"  # 1 - S is 1 for both: the name decides
    assert chosen(ours(REQUEST, [bad, less_bad])) == "b"


def test_where_every_score_is_infinite_the_nearest_is_the_best_and_a_free_way_on_costs_nothing() -> None:
    slow = replace(GOOD, survival=0.0)
    fast = replace(slow, host="b", bandwidth_bytes_per_s=2e8)
    assert chosen(ours(REQUEST, [slow, fast])) == "b"
    assert chosen(ours(REQUEST, [slow, fast], alpha=0.0)) == "b"
    free = replace(slow, host="c", mean_migration_s=0.0)  # inf * 0
    answer = ours(REQUEST, [slow, fast, free])
    assert (answer.host, answer.score_s) == ("c", 20.0)


def test_what_the_neighbours_lose_counts_where_congestion_has_a_price() -> None:
    crowded = replace(GOOD, host="0", expected_reclaims=0.9, added_loss_s=900.0)
    alone = replace(GOOD, host="1", expected_reclaims=1.0, added_loss_s=300.0)
    assert chosen(ours(REQUEST, [replace(crowded, added_loss_s=0.0), replace(alone, added_loss_s=0.0)])) == "0"
    assert chosen(ours(REQUEST, [crowded, alone])) == "1"
    assert chosen(ours(REQUEST, [crowded, replace(alone, expected_reclaims=9.0)])) == "0"


def keeping(**changes: Any) -> PlacementRequest:
    """A request for a host to keep checkpoints of 1 GB."""
    standby = {"notice_s": None, "needs_gpu": False, "remaining_s": 1e4}
    return replace(REQUEST, **{**standby, **changes})


STANDBY = replace(GOOD, bandwidth_bytes_per_s=1e8, mean_migration_s=30.0, expected_reclaims=0.0)


def test_a_standby_costs_the_way_to_it_and_the_way_on() -> None:
    answer = select_standby(keeping(), [STANDBY])
    assert answer.score_s == pytest.approx(10.0)  # C/b
    full = replace(STANDBY, free_gpus=0)
    answer = select_standby(keeping(), [full])
    assert answer.score_s == pytest.approx(10.0 + 20.0)


def test_a_standby_without_a_gpu_next_door_beats_one_far_away_with_one() -> None:
    near = replace(STANDBY, host="near", free_gpus=0)
    far = replace(STANDBY, host="far", bandwidth_bytes_per_s=5e6)  # 200 s to send
    assert chosen(select_standby(keeping(), [near, far])) == "near"
    assert chosen(select_standby(keeping(), [replace(near, free_gpus=1), far])) == "near"
    assert chosen(select_standby(keeping(), [near, replace(far, bandwidth_bytes_per_s=9e7)])) == "far"


def test_a_random_destination_can_run_the_job_but_may_be_late() -> None:
    hosts = [replace(GOOD, host="slow", bandwidth_bytes_per_s=1e6), GOOD, replace(GOOD, host="tiny", memory_bytes=1.0)]
    assert {chosen(select_random(REQUEST, hosts, draw=d / 10)) for d in range(10)} == {"a", "slow"}
    assert isinstance(select_random(REQUEST, hosts[2:], draw=0.5), NoDestination)


@pytest.mark.parametrize("rule", [ours, select_random, select_first, select_elsewhere])
def test_no_rule_takes_a_host_that_is_loaded_more_than_the_job_accepts(rule: Selector) -> None:
    hosts = [replace(GOOD, host="busy", load=0.6), replace(GOOD, host="calm", load=0.4)]
    accepted = {
        limit: {chosen(rule(replace(REQUEST, max_load=limit), hosts, draw=d / 10)) for d in range(10)}
        for limit in (0.5, 0.6)
    }
    assert accepted[0.5] == {"calm"}
    assert "busy" in accepted[0.6]


def brute_force(
    request: PlacementRequest, hosts: list[Candidate], k_min: int | None, as_printed: bool, alpha: float, theta: float
) -> str | None:
    """Algorithm 2, a host at a time."""
    feasible = {}
    for host in hosts:
        there_s = math.inf
        if host.bandwidth_bytes_per_s > 0.0:
            there_s = request.payload_bytes / host.bandwidth_bytes_per_s + request.restart_s
        in_time = there_s <= (math.inf if request.notice_s is None else request.notice_s) and there_s < math.inf
        fits = host.memory_bytes >= request.memory_bytes and host.capability >= request.min_capability
        if host.host != request.source and host.free_gpus >= 1 and fits and host.load <= theta and in_time:
            risk = 1.0 - host.survival if as_printed else host.reclaims_to_expect
            away_s = there_s if host.mean_migration_s is None else host.mean_migration_s
            score = there_s + (alpha * risk * away_s if min(alpha, risk, away_s) > 0.0 else 0.0)
            feasible[host.host] = score, there_s if score == math.inf else 0.0
    local = [h.host for h in hosts if h.host in feasible and h.building == request.source_building]
    if k_min is not None and len(local) >= max(1, k_min):
        feasible = {name: feasible[name] for name in local}
    return min(feasible, key=lambda name: (feasible[name], name), default=None)


hosts_of_any_kind = st.lists(
    st.builds(
        Candidate,
        host=st.sampled_from([f"h{i}" for i in range(30)] + ["s"]),
        building=st.sampled_from(["north", "south"]),
        free_gpus=st.integers(0, 2),
        memory_bytes=st.sampled_from([16e9, 20e9, 24e9]),
        capability=st.sampled_from([7.5, 8.0, 8.6]),
        load=st.sampled_from([0.0, 0.5, 1.0]),
        bandwidth_bytes_per_s=st.sampled_from([0.0, 1e7, 2e7, 1e8, 3e8]),
        survival=st.sampled_from([0.0, 0.2, 0.9, 1.0]),
        mean_migration_s=st.sampled_from([None, 0.0, 15.0, 30.0, math.inf]),
    ),
    max_size=12,
    unique_by=lambda host: host.host,
)


@given(
    hosts_of_any_kind,
    st.sampled_from([None, 0, 1, 3]),
    st.booleans(),
    st.sampled_from([None, 30.0, 60.0, 300.0]),
    st.sampled_from([0.5, 1.0]),
    st.sampled_from([0.0, 1.0]),
    st.randoms(use_true_random=False),
)
def test_columns_choose_what_one_host_at_a_time_would_in_whatever_order(
    hosts: list[Candidate],
    k_min: int | None,
    as_printed: bool,
    notice_s: float | None,
    theta: float,
    alpha: float,
    rng: Random,
) -> None:
    wanted = replace(REQUEST, notice_s=notice_s, max_load=theta)
    options = {"k_min": k_min, "as_printed": as_printed, "alpha": alpha}
    expected = brute_force(wanted, hosts, k_min, as_printed, alpha, theta)
    first = ours(wanted, hosts, **options)
    rng.shuffle(hosts)
    assert first == ours(wanted, hosts, **options)
    assert (first.host if isinstance(first, DestinationChoice) else None) == expected
    if all(host.host == wanted.source for host in hosts):
        assert first == NoDestination(Missing.CANDIDATE)
