"""Checkpoints below research (`checkpoint_class = "scavenger"`): what is granted, who yields, what is promised."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from controller.core.model import facts as f
from controller.core.policies.table import POLICIES, policy_of
from controller.core.settings import Settings
from experiments.inputs.scenario import ResearchFlow
from experiments.inputs.scenario.parts import Protocol
from experiments.inputs.scenario.settings import live_row, settings_of
from experiments.inputs.traces import paper_campus
from experiments.worlds.virtual import simulate
from testbed.messages import JobSpec
from tests.cores_world import SETTINGS, CoresWorld, a_running_job
from topologies.spec import CheckpointClass, DirectedLink, TrafficClass
from topologies.units import PAYLOAD_SHARE

BELOW = replace(SETTINGS, checkpoint_class="scavenger")
LINK = 10e6 * PAYLOAD_SHARE  # of a host of `small_campus`, payload bytes/s
SHARE = 0.7 * LINK
LONG = JobSpec("long", steps=3000, step_s=0.1, payload_bytes=2_000_000, loss_budget_s=5.0)


def a_world(settings: Settings = BELOW) -> CoresWorld:
    world = CoresWorld(settings=settings)
    world.start()
    world.run(0.5)
    return world


def grants(world: CoresWorld, traffic: TrafficClass) -> list[float]:
    return [g.rate_bytes_per_s for g in world.of(f.Granted) if g.traffic_class == traffic]


def test_a_stream_is_granted_the_reserve_too_and_only_where_it_yields() -> None:
    for settings, most in ((replace(SETTINGS, checkpoint_class="share"), SHARE), (BELOW, LINK)):
        world = a_world(settings)
        a_running_job(world, LONG, 20.0)
        granted = max(grants(world, TrafficClass.PRESYNC))
        assert granted <= most
        assert (granted == pytest.approx(0.99 * LINK)) is (settings is BELOW)
        assert world.promises() == []


def test_migrations_stand_on_the_share_whatever_checkpoints_may_use() -> None:
    world = a_world()
    host = a_running_job(world, msgspec.structs.replace(LONG, payload_bytes=30_000_000), 20.0)
    world.reclaim(host, 12.0)
    world.run(40.0)
    assert world.of(f.MigrationAdmitted)
    assert 0.0 < max(grants(world, TrafficClass.PLANNED)) <= SHARE
    assert max(grants(world, TrafficClass.PRESYNC)) > SHARE
    assert world.promises() == []


def test_greedy_research_has_its_whole_link_and_checkpoints_go_on_when_it_ends() -> None:
    world = a_world()
    host = a_running_job(world, LONG, 10.0)
    up = next(link for link in world.env.capacity if link.source == host)
    stranger = next(name for name in world.machines if name != host)
    world.research.add(ResearchFlow(host, stranger))
    before = len(world.of(f.CheckpointCompleted))
    world.run(25.0)
    fluid = world.env.network.fluid
    research = next(flow for flow in fluid.flows() if flow.traffic_class is TrafficClass.RESEARCH)
    assert research.rate_bytes_per_s == pytest.approx(LINK)
    assert len(world.of(f.CheckpointCompleted)) <= before + 1  # one may have been at its end
    assert fluid.load_bytes_per_s(up) == pytest.approx(LINK)
    world.env.network.regrant(research.key, 0.0)  # they have nothing to send any more
    world.run(40.0)
    assert len(world.of(f.CheckpointCompleted)) > before + 1


def test_told_research_is_left_its_room_below_the_reserve_too() -> None:
    world = a_world()
    world.run(5.0)
    core, link = world.coordinator.cluster, DirectedLink("h1", "a1")
    assert core.checkpoint_column[core.network.number[link]] == pytest.approx(0.99 * LINK)
    core.links_measured({link: 1e6})
    assert core.checkpoint_column[core.network.number[link]] == pytest.approx(0.99 * 0.9 * LINK)
    assert core.spendable[link] == pytest.approx(0.99 * SHARE)  # what promises may stand on is the same


def test_what_greedy_strangers_leave_is_learned_without_touching_what_is_promised() -> None:
    world = a_world()
    host = a_running_job(world, LONG, 20.0)
    core = world.coordinator.cluster
    flow = next(flow for flow in core.flows.values() if flow.source == host)
    source, _, target = flow.bottleneck.partition(">")
    link = DirectedLink(source, target)
    core.delivered(flow, 0.5 * flow.cap_bytes_per_s / flow.rate_bytes_per_s)  # half of what P1 counts with
    assert core.checkpoint_bandwidth.delivery(link, core.now_s) == pytest.approx(0.5)
    assert core.bandwidth.delivery(link, core.now_s) == 1.0


def test_the_key_is_the_row_and_does_nothing_where_nothing_is_enforced() -> None:
    scenario, trace = paper_campus(3, days=0.3)
    keyed = replace(scenario, protocol=replace(scenario.protocol, checkpoint_class="scavenger"))
    of_key, of_row = simulate(keyed, trace), simulate(scenario, trace, system="scavenger")
    assert of_key.facts == of_row.facts
    assert of_key.context.checkpoints is CheckpointClass.SCAVENGER
    assert live_row(keyed).scavenger
    assert not policy_of(
        replace(settings_of(scenario), policy="no-tc-bpf", checkpoint_class="scavenger")
    ).scavenger
    assert not policy_of(
        replace(settings_of(scenario), policy="scavenger", checkpoint_class="share")
    ).scavenger


def test_only_its_own_row_has_it() -> None:
    assert [name for name, row in POLICIES.items() if row.scavenger] == ["scavenger"]
    assert Protocol().checkpoint_class == "policy"
