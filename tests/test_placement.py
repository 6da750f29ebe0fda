"""P2: who is feasible, who scores least, and what is said when nobody is."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.placement import (
    Candidate,
    Choice,
    Missing,
    NoDestination,
    Reach,
    Request,
    mean_migration_s,
    mean_migrations_s,
    score_s,
    select,
    select_random,
)

REQUEST = Request(
    source="s",
    payload_bytes=1e9,
    memory_bytes=20e9,
    min_capability=8.0,
    remaining_s=3600.0,
    notice_s=60.0,
    restart_s=10.0,
    source_building="north",
)
GOOD = Candidate(
    "a", "north", 1, 24e9, 8.6, 0.5, bandwidth_bytes_per_s=1e8, survival=0.9, mean_migration_s=30.0
)


def chosen(answer: Choice | NoDestination) -> str:
    assert isinstance(answer, Choice), answer
    return answer.host


def test_the_score_is_seconds_there_plus_the_risk_of_seconds_away() -> None:
    answer = select(REQUEST, [GOOD])
    assert isinstance(answer, Choice) and answer.score_s == pytest.approx(20.0 + 0.1 * 30.0)
    assert (answer.host, answer.migration_s, answer.survival) == ("a", 20.0, 0.9)


def test_a_stable_host_beats_a_faster_one_that_will_be_reclaimed() -> None:
    fast = replace(GOOD, host="fast", bandwidth_bytes_per_s=1.2e8, survival=0.05)
    assert chosen(select(REQUEST, [fast, GOOD])) == "a"
    assert chosen(select(REQUEST, [fast, GOOD], alpha=0.0)) == "fast"


def test_the_source_is_no_destination() -> None:
    answer = select(REQUEST, [replace(GOOD, host="s")])
    assert answer == NoDestination(Missing.CANDIDATE)


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
def test_nobody_fits_and_the_closest_miss_is_named(
    lack: dict[str, Any], reason: Missing, shortfall: float
) -> None:
    missed = replace(GOOD, **lack)
    worse = replace(missed, host="0", memory_bytes=1.0, free_gpus=missed.free_gpus)
    answer = select(REQUEST, [worse, missed], theta=0.9)
    assert isinstance(answer, NoDestination)
    assert answer.reason is reason
    if reason is not Missing.GPU:  # all lack one GPU alike there
        assert answer.closest == "a"
    assert answer.shortfall == pytest.approx(shortfall)


def test_exactly_in_time_is_in_time() -> None:
    assert chosen(select(replace(REQUEST, notice_s=20.0), [GOOD])) == "a"
    late = select(replace(REQUEST, notice_s=19.999), [GOOD])
    assert isinstance(late, NoDestination) and late.reason is Missing.TIME


def test_without_notice_a_slow_path_is_still_a_path() -> None:
    assert chosen(select(replace(REQUEST, notice_s=None), [replace(GOOD, bandwidth_bytes_per_s=1e3)])) == "a"


def test_a_first_start_has_nothing_to_carry() -> None:
    start = replace(REQUEST, source=None, payload_bytes=0.0, notice_s=None)
    assert select(start, [replace(GOOD, bandwidth_bytes_per_s=0.0, survival=1.0)]) == Choice(
        "a", 10.0, 10.0, 1.0
    )


def test_equal_scores_go_to_the_first_name() -> None:
    twins = [replace(GOOD, host=name) for name in ("c", "b", "d")]
    assert chosen(select(REQUEST, twins)) == "b"


def test_the_locality_filter_can_hide_a_better_host_and_is_off_unless_asked_for() -> None:
    stable = replace(GOOD, host="z", building="south", survival=1.0)
    assert chosen(select(REQUEST, [GOOD, stable])) == "z"
    assert chosen(select(REQUEST, [GOOD, stable], k_min=1)) == "a"
    assert chosen(select(REQUEST, [GOOD, stable], k_min=2)) == "z"
    assert chosen(select(REQUEST, [stable], k_min=0)) == "z"


@given(
    st.lists(
        st.tuples(st.sampled_from("ns"), st.floats(3e7, 1e9), st.floats(0.0, 1.0), st.floats(10.0, 500.0)),
        min_size=1,
        max_size=10,
    ),
    st.integers(0, 5),
)
def test_scoring_everybody_is_never_worse_than_filtering_by_building(
    shapes: list[tuple[str, float, float, float]], k_min: int
) -> None:
    hosts = [
        Candidate(f"h{i}", "north" if b == "n" else "south", 1, 24e9, 8.6, 0.5, bw, s, mean)
        for i, (b, bw, s, mean) in enumerate(shapes)
    ]
    everybody, filtered = select(REQUEST, hosts), select(REQUEST, hosts, k_min=k_min)
    assert isinstance(everybody, Choice) and isinstance(filtered, Choice)
    assert everybody.score_s <= filtered.score_s


def test_the_second_form_tells_hosts_apart_that_no_job_survives_on() -> None:
    bad = replace(GOOD, host="a", survival=0.0, expected_reclaims=90.0)
    less_bad = replace(GOOD, host="b", survival=0.0, expected_reclaims=50.0)
    assert chosen(select(REQUEST, [bad, less_bad])) == "a"  # 1 - S is 1 for both: the name decides
    assert chosen(select(REQUEST, [bad, less_bad], second_form=True)) == "b"


def test_the_second_form_agrees_with_the_first_where_risk_is_small() -> None:
    safe = replace(GOOD, survival=0.999)
    first, second = select(REQUEST, [safe]), select(REQUEST, [safe], second_form=True)
    assert isinstance(first, Choice) and isinstance(second, Choice)
    assert second.score_s == pytest.approx(first.score_s, rel=1e-5)


def test_no_risk_no_penalty_even_where_there_is_no_way_on() -> None:
    assert score_s(20.0, 0.0, math.inf) == 20.0
    assert score_s(20.0, 0.1, math.inf) == math.inf


def test_a_lone_candidate_is_charged_its_own_migration() -> None:
    alone = select(REQUEST, [replace(GOOD, mean_migration_s=None)])
    assert isinstance(alone, Choice) and alone.score_s == pytest.approx(20.0 + 0.1 * 20.0)


def test_a_random_destination_can_run_the_job_but_may_be_late() -> None:
    hosts = [
        replace(GOOD, host="slow", bandwidth_bytes_per_s=1e6),
        GOOD,
        replace(GOOD, host="tiny", memory_bytes=1.0),
    ]
    assert {chosen(select_random(REQUEST, hosts, draw=d / 10)) for d in range(10)} == {"a", "slow"}
    assert isinstance(select_random(REQUEST, hosts[2:], draw=0.5), NoDestination)


def test_the_mean_migration_leaves_out_the_host_itself_and_whom_it_cannot_reach() -> None:
    rates = {("a", "b"): 1e8, ("a", "c"): 5e7, ("a", "d"): 0.0}
    assert mean_migration_s("a", "abcd", 1e9, 10.0, lambda x, y: rates[x, y]) == pytest.approx(
        10.0 + (10 + 20) / 2
    )
    assert mean_migration_s("a", "a", 1e9, 10.0, lambda x, y: 1.0) is None
    assert mean_migration_s("a", "ad", 1e9, 10.0, lambda x, y: rates[x, y]) == math.inf


@given(
    st.lists(
        st.tuples(st.sampled_from("xyz"), st.sampled_from([0.0, 1e6, 3e7, 1e8]), st.floats(0.0, 1e9)),
        min_size=1,
        max_size=12,
    )
)
def test_all_means_at_once_equal_one_mean_at_a_time(shapes: list[tuple[str, float, float]]) -> None:
    down_or_none = [0.0 if down < 1e3 else down for _, _, down in shapes]
    reaches = [Reach(f"h{i}", g, up, down_or_none[i]) for i, (g, up, _) in enumerate(shapes)]
    by_name = {r.host: r for r in reaches}

    def between(a: str, b: str) -> float:
        return math.inf if a == b else 0.0 if {a, b} == {"x", "z"} else 5e7

    def bandwidth(a: str, b: str) -> float:
        x, y = by_name[a], by_name[b]
        return min(x.up_bytes_per_s, between(x.group, y.group), y.down_bytes_per_s)

    together = mean_migrations_s(reaches, between, 1e9, 10.0)
    for host in by_name:
        alone = mean_migration_s(host, by_name, 1e9, 10.0, bandwidth)
        assert together[host] == (None if alone is None else pytest.approx(alone, rel=1e-9))
