"""Everybody else's traffic: it is on the links, switches count it, decisions follow it, promises outlive it."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import BackgroundTraffic, Trace, paper_campus
from experiments.worlds.virtual import VirtualRun, make_world, simulate
from experiments.worlds.virtual.invariants import Invariants
from testbed.model.network import max_min
from topologies.spec import DirectedLink, TrafficClass
from topologies.units import PAYLOAD_SHARE

A, B, C = (DirectedLink(x, "s") for x in "abc")


def played(seed: int, days: float = 2.0, *, background: bool = True) -> tuple[Scenario, Trace]:
    scenario, trace = paper_campus(seed, days=days)
    return scenario, trace if background else replace(trace, background=None)


@cache
def run_of(system: str) -> VirtualRun:
    """Two days under a system."""
    return simulate(*played(2), system=system)


# ---------------------------------------------------------------- on the links
def test_the_background_is_carried_whole_where_migrations_are_held_to_what_it_leaves() -> None:
    ours, unshaped = run_of("reclaimnet"), run_of("no-tc-bpf")
    assert ours.background.offered_bytes == unshaped.background.offered_bytes > 1e15
    assert 0.0 <= ours.background.worst_epoch <= 0.03 < unshaped.background.worst_epoch
    assert simulate(*played(2, 0.5, background=False)).background is None


@pytest.mark.parametrize("system", ["reclaimnet", "research-whole"])
def test_research_loses_no_more_than_it_may_in_any_hour(system: str) -> None:
    figures = run_of(system).background.figures()
    most = 0.03 if system == "reclaimnet" else 1e-4
    assert 0.0 < figures["lost"] <= figures["worst"] <= most
    assert figures["worst"] > most / 3 or system != "reclaimnet"  # it is taken where it is of use


def test_what_research_lacks_is_what_the_network_did_not_carry_of_what_it_asked_for() -> None:
    """Two flows, of which others send beside one for a while: first where it asks for a tenth of its link, then for .8."""
    scenario, trace = played(4, 0.25, background=False)
    capacity = 125e6 * PAYLOAD_SHARE
    quiet, loud = 0.1 * 125e6, 0.8 * 125e6
    background = BackgroundTraffic(3600.0, (("h1", "h2"), ("h15", "h16")), ((quiet, quiet), (loud, loud)), (1, 1))
    world = make_world(
        scenario, replace(trace, background=background, arrivals=(), owner_events=()), system="no-tc-bpf"
    )
    network, ends = world.env.network, world.env.routes.way("h1", "h2")
    world.run(0.5 + 600.0)
    for n in range(19):  # of twenty the background has a twentieth: 5 where it asks for 10
        network.start(f"stream {n}", ends, TrafficClass.PRESYNC, 1e18, 1e18)
    world.run(0.5 + 700.0)
    for n in range(19):
        network.stop(f"stream {n}")
    world.run(0.5 + 3600.0 + 1000.0)
    # one alone: half of the link where 80 are asked for, all of the reserve
    network.start("stream", ends, TrafficClass.PRESYNC, 1e18, 1e18)
    world.run(0.5 + 3600.0 + 1300.0)
    network.stop("stream")
    world.run(0.5 + 7200.0 - 1.0)
    found = world.background.account()
    lacked = 100.0 * 0.05 * capacity, 300.0 * 0.3 * capacity
    asked = 3600.0 * 0.1 * capacity + 3599.0 * 0.8 * capacity
    assert found.offered_bytes == pytest.approx(2 * asked)
    assert found.offered_bytes - found.carried_bytes == pytest.approx(sum(lacked))
    in_the_first, in_the_second = lacked[0] / (0.1 * capacity), lacked[1] / (0.8 * capacity)
    assert found.worst_epoch == pytest.approx(max(in_the_first, in_the_second) / 3600.0)


# ---------------------------------------------------------------- decisions
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_promises_are_kept_while_the_background_comes_and_goes(seed: int) -> None:
    scenario, trace = played(seed, 1.5)
    summary = simulate(scenario, trace, after_each=Invariants()).summary()
    assert summary.invariants_broken == []
    assert summary.jobs.lost == 0
    assert summary.jobs.finished >= 2
    assert summary.migrations.in_time >= summary.migrations.admitted - 1  # one may still run at the end


# ---------------------------------------------------------------- the network
@given(
    st.lists(
        st.tuples(st.floats(0.0, 50.0), st.sets(st.integers(0, 2), min_size=1), st.integers(1, 5)),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.floats(1.0, 60.0), min_size=3, max_size=3),
)
def test_a_flow_of_many_gets_what_as_many_flows_would(
    flows: list[tuple[float, set[int], int]], room: list[float]
) -> None:
    links = dict(enumerate(room))
    together = max_min([(cap, tuple(path)) for cap, path, _ in flows], links, [float(many) for *_, many in flows])
    apart = [(cap / many, tuple(path)) for cap, path, many in flows for _ in range(many)]
    single = iter(max_min(apart, links))
    for rate, (*_, many) in zip(together, flows, strict=True):
        assert rate == pytest.approx(sum(next(single) for _ in range(many)), rel=1e-9, abs=1e-9)
