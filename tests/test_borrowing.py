"""Checkpoints that may borrow (`Policy.borrows`): what is granted beside what, who has what of the reserve."""

import msgspec
import pytest

from controller.core.model import facts as f
from controller.core.policies.table import POLICIES
from experiments.inputs.scenario import ResearchFlow
from experiments.inputs.traces import paper_campus
from experiments.worlds.live.world import live_row
from experiments.worlds.virtual import simulate
from testbed.messages import JobSpec
from tests.world import World, a_running_job, a_world
from topologies.spec import DirectedLink, TrafficClass
from topologies.units import PAYLOAD_SHARE

LINK = 10e6 * PAYLOAD_SHARE  # of a host of `small_campus`, payload bytes/s
SHARE = 0.7 * LINK
LONG = JobSpec("long", steps=3000, step_s=0.1, payload_bytes=2_000_000, loss_budget_s=5.0)


def grants(world: World, traffic: TrafficClass) -> list[float]:
    return [g.rate_bytes_per_s for g in world.of(f.Granted) if g.traffic_class == traffic]


@pytest.fixture
def world() -> World:
    return a_world(6, 2, level_start=1.0)


def test_a_stream_is_granted_the_idle_reserve_and_a_migration_is_not(world: World) -> None:
    host = a_running_job(world, msgspec.structs.replace(LONG, payload_bytes=30_000_000), 20.0)
    assert max(grants(world, TrafficClass.PRESYNC)) == pytest.approx(0.99 * LINK)
    world.reclaim(host, 12.0)
    world.run(40.0)
    assert world.of(f.MigrationAdmitted)
    assert 0.0 < max(grants(world, TrafficClass.PLANNED)) <= SHARE
    assert world.promises() == []


def test_two_streams_of_a_host_have_its_link_together_and_no_more(world: World) -> None:
    for name, at_s in (("one", 20.0), ("other", 40.0)):
        a_running_job(world, msgspec.structs.replace(LONG, name=name), at_s)
    core = world.coordinator.cluster
    load: dict[DirectedLink, float] = {}
    for flow in core.flows.values():
        for link in core.routes.way(flow.source, flow.destination):
            load[link] = load.get(link, 0.0) + flow.rate_bytes_per_s
    assert max(load.values()) > SHARE
    assert max(load.values()) <= LINK
    assert world.promises() == []


def test_a_greedy_stranger_that_nobody_counts_has_the_reserve_and_checkpoints_go_on(world: World) -> None:
    host = a_running_job(world, LONG, 10.0)
    stranger = next(name for name in world.machines if name != host)
    world.research.add(ResearchFlow(host, stranger))
    before = len(world.of(f.CheckpointCompleted))
    world.run(40.0)
    fluid = world.env.network.fluid
    research = next(flow for flow in fluid.flows() if flow.traffic_class is TrafficClass.RESEARCH)
    assert research.moved(world.now_s) >= 0.3 * LINK * 39.0
    assert len(world.of(f.CheckpointCompleted)) > before + 3
    assert world.promises() == []


def test_a_stream_within_the_share_is_granted_no_more() -> None:
    world = a_world(6, 2, level_start=1.0, policy="share")
    a_running_job(world, LONG, 20.0)
    assert max(grants(world, TrafficClass.PRESYNC)) <= SHARE
    assert world.promises() == []


def test_checkpoints_borrow_unless_the_row_says_otherwise_or_nothing_is_enforced() -> None:
    scenario, trace = paper_campus(3, days=0.3)
    share, override, borrowing = (
        simulate(scenario, trace, system=name) for name in ("share", "reclaimnet+borrows=false", "reclaimnet")
    )
    assert share.facts == override.facts != borrowing.facts
    assert borrowing.context.borrows and not share.context.borrows
    assert live_row(scenario).borrows
    otherwise = {name for name, row in POLICIES.items() if not row.borrows}
    assert otherwise == {"reclaimnet-as-printed", "share", *(n for n, row in POLICIES.items() if not row.enforced)}
