"""Research in the virtual campus where switches have several ways: shared as their groups share it, also when trunks die."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from controller.core.model import facts as f
from controller.core.model.effects import SetLoads
from experiments.inputs.scenario import ResearchFlow
from experiments.inputs.traces import BackgroundTraffic
from experiments.results.run_context import research_shares
from experiments.storms.setup import PROTOCOL, QUEUE
from experiments.storms.verdict import context_of
from experiments.worlds.live.research import _RECORD, Measured, samples
from experiments.worlds.virtual.background import VirtualBackground
from experiments.worlds.virtual.links import PROGRAMMING_S
from experiments.worlds.virtual.world import VirtualWorld
from topologies import presets
from topologies.paths import Routes
from topologies.spec import Campus, DirectedLink, TrafficClass
from topologies.units import PAYLOAD_SHARE

MB = 1e6
UP1, UP2 = DirectedLink("l2", "s1"), DirectedLink("l2", "s2")


def leaves(hosts_per_leaf: int = 1) -> Campus:
    """Three buildings on two spines."""
    mix = (presets.GpuShare(presets.RTX3090, 1, 1),)
    return presets.leaf_spine(3, 2, hosts_per_leaf, access_bytes_per_s=10 * MB, uplink_bytes_per_s=8 * MB, mix=mix)


def with_background(*flows: tuple[str, str], rate: float = 4 * MB) -> VirtualWorld:
    world = VirtualWorld(leaves(), PROTOCOL, QUEUE)
    traffic = BackgroundTraffic(3600.0, flows, ((rate,) * len(flows),), (40,) * len(flows))
    world.background = VirtualBackground(world.env, world.connections, traffic)
    world.start()
    world.at(0.5, world.background.begin)
    world.run(2.0)
    return world


def on(world: VirtualWorld, link: DirectedLink) -> float:
    """What research takes of a link, wire bytes/s."""
    flows = world.env.network.fluid.flows()
    rates = [
        flow.rate_bytes_per_s for flow in flows if flow.traffic_class is TrafficClass.RESEARCH and link in flow.links
    ]
    return sum(rates) / PAYLOAD_SHARE


def test_traffic_of_others_is_shared_over_both_spines_and_the_coordinator_is_told_so() -> None:
    world = with_background(("h2", "h3"))
    told = world.coordinator.cluster.capacity.research
    assert [on(world, UP1), on(world, UP2)] == pytest.approx([2 * MB, 2 * MB])
    assert [told[UP1], told[UP2]] == pytest.approx([2 * MB, 2 * MB])
    tree = Routes(world.env.campus).route("h2", "h3")[1]
    (other,) = {UP1, UP2} - {tree}
    world.links.change(other.source, other.target, up=False)  # a trunk on which no grant ever is
    assert [on(world, tree), on(world, other)] == pytest.approx([4 * MB, 0.0])
    assert [told[tree], told[other]] == pytest.approx([4 * MB, 0.0])
    world.run(4.0)
    world.links.change(other.source, other.target, up=True)
    assert [on(world, UP1), on(world, UP2)] == pytest.approx([2 * MB, 2 * MB])
    world.run(6.0)
    account = world.background.account()
    assert account.carried_bytes == pytest.approx(account.offered_bytes, rel=1e-9)
    assert account.offered_bytes == pytest.approx(5.5 * 4 * MB * PAYLOAD_SHARE)


def test_traffic_on_a_trunk_stays_on_that_trunk_and_what_has_no_way_is_not_carried() -> None:
    world = with_background(("l2", "s1"), ("l2", "s2"))
    assert [on(world, UP1), on(world, UP2)] == pytest.approx([4 * MB, 4 * MB])
    for spine in ("s1", "s2"):
        world.links.change("l2", spine, up=False)
    assert [on(world, UP1), on(world, UP2)] == pytest.approx([0.0, 0.0])


def test_research_goes_where_grants_leave_room_a_moment_after_they_are_told() -> None:
    world = with_background(("h2", "h3"))
    world.links.weigh(SetLoads([("l2", "s1", 6 * MB)]))
    assert on(world, UP1) == pytest.approx(2 * MB)
    world.run(world.now_s + 1.5 * PROGRAMMING_S)
    assert [on(world, UP1), on(world, UP2)] == pytest.approx([0.75 * MB, 3.25 * MB])  # 3 slots of 16
    world.links.weigh(SetLoads([("l2", "s1", 6 * MB)]))
    world.links.weigh(SetLoads([]))
    world.run(world.now_s + 1.5 * PROGRAMMING_S)
    assert on(world, UP1) == pytest.approx(2 * MB)


def test_a_connection_takes_one_way_and_goes_to_another_when_its_trunk_dies() -> None:
    flow = ResearchFlow("h2", "h3", math.inf)
    world = VirtualWorld(leaves(), PROTOCOL, QUEUE, research=[flow] * 24, duration_s=60.0)
    world.start()
    world.at(0.5, world.research.begin)
    world.run(4.0)
    ways = [each.links for each in world.env.network.fluid.flows()]
    by_spine = {spine: sum(DirectedLink("l2", spine) in way for way in ways) for spine in ("s1", "s2")}
    assert sum(by_spine.values()) == 24 and min(by_spine.values()) >= 5
    assert on(world, UP1) + on(world, UP2) == pytest.approx(10 * MB)  # the access link binds
    before = len(world.research.samples)
    world.links.change("l2", "s2", up=False)
    assert all(UP1 in each.links for each in world.env.network.fluid.flows())
    world.run(5.4)
    late = world.research.samples[before:]
    judged = [sample for sample in late if sample.link_capacity_bytes_per_s]
    assert len(judged) == by_spine["s1"]  # windows of those that were moved count for others alone
    assert all(UP1 in sample.way for sample in late) and len(late) == 24
    world.run(7.0)
    shares = research_shares(replace(context_of(world, {}), research=world.research.samples))
    assert min(share.wire_bytes_per_s for share in shares if share.sample.at_s > 6.0) == pytest.approx(8 * MB)


def test_live_research_is_judged_on_the_narrowest_of_the_trunks_that_its_hash_may_have_chosen(tmp_path: Path) -> None:
    base = leaves()
    links = tuple(
        replace(link, rate_bytes_per_s=2 * MB) if {link.a, link.b} == {"l2", "s2"} else link for link in base.links
    )
    campus = replace(base, links=links)
    record = tmp_path / "windows.bin"
    record.write_bytes(b"".join(_RECORD.pack(float(second), int(MB)) for second in range(1, 12)))
    flow = Measured(ResearchFlow("h2", "h3", math.inf), 1, "10.0.0.1", record, "10.0.0.2")
    found = samples(campus, [flow], 0.0, 20.0)
    assert {(s.narrowest, s.link_capacity_bytes_per_s) for s in found} == {(UP2, 2 * MB)}
    cut = [(6.2, f.LinkChanged("l2", "s2", 0.0)), (6.2, f.LinkChanged("s2", "l2", 0.0))]
    found = samples(campus, [flow], 0.0, 20.0, cut)
    assert {s.link_capacity_bytes_per_s for s in found if s.at_s <= 5.5} == {2 * MB}
    assert {s.link_capacity_bytes_per_s for s in found if 6.0 <= s.at_s <= 10.0} == {0.0}  # ways were others
    assert {s.link_capacity_bytes_per_s for s in found if s.at_s > 10.5} == {8 * MB}
