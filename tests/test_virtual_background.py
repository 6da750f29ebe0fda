"""Everybody else's traffic: it is on the links, switches count it, decisions follow it, promises outlive it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import BackgroundTraffic, Trace, paper_campus
from experiments.worlds.virtual import VirtualWorld, make_world, simulate
from experiments.worlds.virtual.invariants import Invariants
from testbed.model.network import FluidNetwork, Sharing, max_min
from topologies.presets import campus54
from topologies.spec import DirectedLink, TrafficClass
from topologies.units import MBIT_PER_S, PAYLOAD_SHARE

UPLINK = DirectedLink("d1", "core")
A, B, C = (DirectedLink(x, "s") for x in "abc")


def played(seed: int, days: float = 2.0, *, background: bool = True) -> tuple[Scenario, Trace]:
    scenario, trace = paper_campus(seed, days=days)
    return scenario, trace if background else replace(trace, background=None)


# ---------------------------------------------------------------- on the links


def left(world: VirtualWorld, which: str) -> float:
    network, ends = world.env.network.fluid, {"core", "d1", "d2", "d3", "d4"}
    links = [
        link
        for link in campus54().capacity_bytes_per_s
        if (
            {link.source, link.target} <= ends
            if which == "core"
            else {link.source[0], link.target[0]} == {"h", "a"}
        )
    ]
    free = [network.capacity_bytes_per_s(link) - network.load_bytes_per_s(link) for link in links]
    return sum(free) / len(free) / PAYLOAD_SHARE / MBIT_PER_S


def test_the_background_is_carried_whole_where_migrations_are_held_to_what_it_leaves() -> None:
    ours, unshaped = (simulate(*played(2), system=system) for system in ("reclaimnet", "no-tc-bpf"))
    assert ours.background is not None
    assert unshaped.background is not None
    assert ours.background.offered_bytes == unshaped.background.offered_bytes > 1e15
    assert 0.0 <= ours.background.worst_epoch <= 0.03 < unshaped.background.worst_epoch
    assert simulate(*played(2, 0.5, background=False)).background is None


@pytest.mark.parametrize("system", ["reclaimnet", "research-whole"])
def test_research_loses_no_more_than_it_may_in_any_hour_and_nothing_of_its_reserve(system: str) -> None:
    run = simulate(*played(2), system=system)
    assert run.background is not None
    figures = run.background.figures()
    most = 0.03 if system == "reclaimnet" else 1e-4
    assert 0.0 < figures["lost"] <= figures["worst"] <= most
    assert figures["short"] == figures["below"] == 0.0 and figures["degraded"] < 1e-5
    assert figures["worst"] > most / 3 or system != "reclaimnet"  # it is taken where it is of use


def test_what_research_lacks_is_what_the_network_did_not_carry_of_what_it_asked_for() -> None:
    """Two flows, of which others send beside one for a while: first where it asks for a tenth of its link, then for .8."""
    scenario, trace = played(4, 0.25, background=False)
    capacity = 125e6 * PAYLOAD_SHARE
    quiet, loud = 0.1 * 125e6, 0.8 * 125e6
    background = BackgroundTraffic(
        3600.0, (("h1", "h2"), ("h15", "h16")), ((quiet, quiet), (loud, loud)), (1, 1)
    )
    world = make_world(
        scenario, replace(trace, background=background, arrivals=(), owner_events=()), system="no-tc-bpf"
    )
    network, ends = world.env.network, world.env.way("h1", "h2", TrafficClass.PRESYNC)
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
    assert world.background is not None
    found, span_s = world.background.account(), 7199.0
    lacked = 100.0 * 0.05 * capacity, 300.0 * 0.3 * capacity
    asked = 3600.0 * 0.1 * capacity + 3599.0 * 0.8 * capacity
    assert found.offered_bytes == pytest.approx(2 * asked)
    assert found.offered_bytes - found.carried_bytes == pytest.approx(sum(lacked))
    assert found.reserved_bytes == pytest.approx(2 * (3600.0 * 0.1 + 3599.0 * 0.3) * capacity)
    assert found.short_bytes == pytest.approx(lacked[0])
    assert found.below_s == pytest.approx(100.0)
    assert found.degraded_s == pytest.approx(400.0)
    assert found.flow_s == pytest.approx(2 * span_s)
    in_the_first, in_the_second = lacked[0] / (0.1 * capacity), lacked[1] / (0.8 * capacity)
    assert found.worst_epoch == pytest.approx(max(in_the_first, in_the_second) / 3600.0)


# ---------------------------------------------------------------- decisions


def test_the_coordinator_gives_out_what_switches_say_is_left() -> None:
    scenario, trace = played(1, 0.5)
    rates = ((0.0,), (9.76e9 / 8,), (0.0,))
    background = BackgroundTraffic(3600.0, (("d1", "core"),), rates, (41,))
    world = make_world(scenario, replace(trace, background=background, arrivals=()))
    core = world.coordinator.cluster
    whole = core.capacity.share[UPLINK] * 0.99
    # of what others ask for 3 % may be lost to them
    left = (240 * MBIT_PER_S + 0.03 * 9.76e9 / 8) * PAYLOAD_SHARE * 0.99
    for hour, expected in ((0.5, whole), (1.5, left), (2.5, whole)):
        world.run(3600.0 * hour)
        assert core.capacity.spendable[UPLINK] == pytest.approx(expected, rel=1e-6)
        assert core.capacity.bandwidth.available(UPLINK, world.now_s) == pytest.approx(
            expected / 0.99, rel=1e-6
        )
        assert core.capacity.reservable[UPLINK] == pytest.approx(whole)


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
    together = max_min(
        [(cap, tuple(path)) for cap, path, _ in flows], links, [float(many) for *_, many in flows]
    )
    apart = [(cap / many, tuple(path)) for cap, path, many in flows for _ in range(many)]
    single = iter(max_min(apart, links))
    for rate, (*_, many) in zip(together, flows, strict=True):
        assert rate == pytest.approx(sum(next(single) for _ in range(many)), rel=1e-9, abs=1e-9)


@given(
    st.lists(st.lists(st.floats(0.0, 30.0), min_size=4, max_size=4), min_size=1, max_size=4),
    st.sampled_from(Sharing),
)
def test_caps_changed_at_once_give_the_rates_of_one_after_the_other(
    rounds: list[list[float]], sharing: Sharing
) -> None:
    at_once, one_by_one = (FluidNetwork({A: 20.0, B: 25.0, C: 15.0}, sharing) for _ in range(2))
    classes = (TrafficClass.PLANNED, TrafficClass.RESEARCH, TrafficClass.PRESYNC, TrafficClass.RESEARCH)
    paths = ((A, B), (B,), (A, C), (B, C))
    keys = "wxyz"
    for network in (at_once, one_by_one):
        for key, path, traffic_class in zip(keys, paths, classes, strict=True):
            network.start(key, path, traffic_class, 1e9, 10.0, 0.0)
    for second, caps in enumerate(rounds, 1):
        at_once.regrant_all(dict(zip(keys, caps, strict=True)), float(second))
        for key, cap in zip(keys, caps, strict=True):
            one_by_one.regrant(key, cap, float(second))
        for key in keys:
            rates = [network.flow(key).rate_bytes_per_s for network in (at_once, one_by_one)]
            assert rates[0] == pytest.approx(rates[1], abs=1e-9)
