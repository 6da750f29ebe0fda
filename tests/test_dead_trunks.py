"""Trunks that die: one rule for tables, plans and the virtual campus; migrations that are moved with their promises."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import facts as f
from controller.openflow.routes import tables
from experiments.results.rules.network import grants_stay_within_the_share
from experiments.storms.setup import PROTOCOL, QUEUE
from experiments.storms.verdict import context_of
from experiments.worlds.virtual.invariants import Invariants
from experiments.worlds.virtual.world import VirtualWorld
from testbed.emulation.description.openflow import topology_of
from testbed.emulation.description.plan import plan
from testbed.messages import JobSpec
from tests.test_openflow_routes import EF, addressed, ways
from topologies import presets
from topologies.addresses import building_addresses
from topologies.paths import RouteHistory, Routes, junctions
from topologies.spec import (
    Building,
    Campus,
    DirectedLink,
    Fabric,
    GpuModel,
    Host,
    Link,
    Role,
    Switch,
    Tier,
    TrafficClass,
)

GPU = GpuModel("g", 24e9, 8.6)
MB = 1e6


@st.composite
def campuses(draw: st.DrawFn) -> Campus:
    """Connected graphs of 3 to 9 switches, leaves among them, with hosts anywhere."""
    names = [f"s{i}" for i in range(draw(st.integers(3, 9)))]
    pairs = {(names[draw(st.integers(0, i - 1))], names[i]) for i in range(1, len(names))}
    spare = [(b, a) for i, a in enumerate(names) for b in names[:i]]
    pairs |= set(draw(st.lists(st.sampled_from(spare), min_size=1, max_size=10)))
    links = [Link(*ends, 1e8) for ends in draw(st.permutations(sorted(pairs)))]
    addresses = building_addresses(1)
    hosts = [Host("coord", "b", Role.COORDINATOR, next(addresses))]
    at = draw(st.lists(st.sampled_from(names), min_size=2, max_size=6))
    hosts += [Host(f"h{n}", "b", Role.VOLUNTEER, next(addresses), "g", 1) for n in range(1, len(at) + 1)]
    links += [Link(host.name, switch, 1e8) for host, switch in zip(hosts, [at[0], *at], strict=True)]
    switches = tuple(Switch(name, Tier.ACCESS, "b") for name in draw(st.permutations(names)))
    return Campus("c", (Building("b"),), tuple(hosts), switches, tuple(links), (GPU,), fabric=Fabric.OPENVSWITCH)


def some_dead(campus: Campus, picks: list[int]) -> frozenset[frozenset[str]]:
    inner = set(junctions(campus))
    trunks = [frozenset((link.a, link.b)) for link in campus.links if inner >= {link.a, link.b}]
    return frozenset(trunks[pick % len(trunks)] for pick in picks) if trunks else frozenset()


def reached(campus: Campus, a: str, dead: frozenset[frozenset[str]]) -> dict[str, int]:
    """Live cables from a node to all that it can reach; by a search of its own."""
    depth, todo = {a: 0}, [a]
    for node in todo:
        for other in campus.neighbours[node]:
            if other not in depth and frozenset((node, other)) not in dead:
                depth[other] = depth[node] + 1
                todo.append(other)
    return depth


@given(campuses(), st.lists(st.integers(0, 30), max_size=5))
def test_grants_are_charged_on_the_way_that_the_tables_forward(campus: Campus, picks: list[int]) -> None:
    dead, topology = some_dead(campus, picks), topology_of(plan(campus))
    routes, made = Routes(campus, dead), tables(topology, dead)
    for a in topology.stations:
        near = reached(campus, a.host, dead)
        for b in topology.stations:
            route = routes.route(a.host, b.host)
            nodes = [a.host, *(step.target for step in route)]
            assert len(set(nodes)) == len(nodes) and all(y in campus.neighbours[x] for x, y in pairwise(nodes))
            assert routes.is_live(a.host, b.host) == (b.host in near)
            assert list(reversed([(y, x) for x, y in route])) == list(routes.route(b.host, a.host))
            if a.switch != b.switch:
                (way,) = ways(topology, addressed(EF, a, b), a.switch, made, dead)
                charged = [node for node in nodes if node in topology.switches]
                assert way == charged if b.host in near else way[-1] == "lost"


@given(campuses(), st.lists(st.lists(st.integers(0, 30), max_size=4), min_size=1, max_size=4))
def test_routes_that_follow_are_those_made_anew_and_shortest_from_the_root(
    campus: Campus, turns: list[list[int]]
) -> None:
    routes, history = Routes(campus), RouteHistory(campus)
    for turn, picks in enumerate(turns):
        dead = some_dead(campus, picks)
        before = {host.name: routes.route("coord", host.name) for host in campus.hosts}
        moved = routes.follow(dead)
        history.follow(float(turn), dead)
        fresh = Routes(campus, dead)
        assert routes.equals(fresh) and history.latest.equals(fresh) and history.at(turn + 0.5).equals(fresh)
        for host in campus.hosts:
            route = routes.route("coord", host.name)
            assert route == fresh.route("coord", host.name) and (moved or route == before[host.name])
            assert set(route) <= history.links_of("coord", host.name, turn, turn + 1.0)
        for node, steps in reached(campus, routes.root, dead).items():
            assert len(routes.route(routes.root, node)) == steps
    routes.follow(())
    assert routes.equals(Routes(campus))


# ---------------------------------------------------------------- the coordinator and the virtual campus
def two_uplinks() -> Campus:
    """Three buildings of one host, on two spines each."""
    mix = (presets.GpuShare(presets.RTX3090, 1, 1),)
    return presets.leaf_spine(3, 2, 1, access_bytes_per_s=10 * MB, uplink_bytes_per_s=8 * MB, mix=mix)


def moving(notice_s: float) -> VirtualWorld:
    """h1's job is on its way to another building, the way that P3 was asked for."""
    seldom = replace(PROTOCOL, checkpoint_share=0.2)  # no checkpoint is on its way when the notice comes
    world = VirtualWorld(two_uplinks(), seldom, QUEUE, after_each=Invariants())
    world.start()
    world.at(1.0, lambda: world.submit(JobSpec("j", 3000, 0.1, 20_000_000)))
    world.run(8.0)
    (host,) = [name for name, state in world.coordinator.cluster.hosts.items() if state.jobs]
    world.reclaim(host, notice_s, grace=True)
    while not any(True for _ in world.env.network.fluid.flows_from(host)):
        world.run(world.now_s + 0.1)
    return world


def told(world: VirtualWorld, kind: type[f.Fact]) -> list[Any]:
    return [fact for _, fact in world.facts if type(fact) is kind]


def test_migration_goes_on_by_the_other_trunk_with_its_grant_reserved_there() -> None:
    world = moving(20.0)
    cluster = world.coordinator.cluster
    (flow,) = cluster.flows.values()
    before = cluster.routes.route(flow.source, flow.destination)
    trunk = next(link for link in before if "s1" in link)
    world.links.set(*trunk, 0.0)  # a fault: the network sees it, and tells
    after = cluster.routes.route(flow.source, flow.destination)
    assert trunk not in after and world.env.routes.route(flow.source, flow.destination) == after
    (real,) = world.env.network.fluid.flows_from(flow.source)
    assert real.links[:-1] == after and real.rate_bytes_per_s > 0.0
    assert cluster.capacity.share[trunk] == 0.0 and cluster.flows.rows().paths.link.tolist() == list(
        cluster.network.path(after)
    )
    world.run(60.0)
    (finished,) = told(world, f.MigrationFinished)
    assert finished.in_time and not told(world, f.MigrationDegraded)
    world.links.set(*trunk, 1.0)
    assert cluster.routes.route(flow.source, flow.destination) == before
    assert list(grants_stay_within_the_share(world.facts, context_of(world, {}))) == []


def test_migration_without_a_way_is_degraded_at_once() -> None:
    world = moving(20.0)
    (flow,) = world.coordinator.cluster.flows.values()
    at_s = world.now_s
    leaf = next(iter(world.env.campus.neighbours[flow.source]))
    world.links.set(leaf, "s1", 0.0)
    assert not told(world, f.MigrationDegraded)
    world.links.set(leaf, "s2", 0.0)
    degraded = [(when, fact) for when, fact in world.facts if isinstance(fact, f.MigrationDegraded)]
    assert [when for when, _ in degraded] == [at_s]
    assert not any(flow.traffic_class is TrafficClass.PLANNED for flow in world.coordinator.cluster.flows.values())
    for spine in ("s1", "s2"):
        world.after(1.0, lambda spine=spine: world.links.set(leaf, spine, 1.0))
    world.run(at_s + 19.0)
    assert len(told(world, f.MigrationAdmitted)) == 2  # once it can be heard again


def test_judge_holds_grants_to_the_links_that_they_went_over_then() -> None:
    """Two grants that fit on two trunks do not fit on one."""
    campus = two_uplinks()
    world = VirtualWorld(campus, PROTOCOL, QUEUE)
    context = context_of(world, {})
    share = context.share[DirectedLink("l2", "h2")]
    grants = [(1.0, f.Granted("j", "h1", "h2", "AF41", 0.5 * share, 0.0, ""))]
    routes = Routes(campus)
    trunk = next(link for link in routes.route("h1", "h2") if "s1" in link)
    cut = [(2.0, f.LinkChanged(*link, 0.0)) for link in (trunk, DirectedLink(trunk.target, trunk.source))]
    other = Routes(campus, {frozenset(trunk)}).route("h1", "h2")[1]
    slow = [(1.5, f.LinkChanged(*other, 1 * MB))]
    assert list(grants_stay_within_the_share([*grants, *slow], context)) == []
    (breach,) = list(grants_stay_within_the_share([*grants, *slow, *cut], context))
    assert breach.subject == str(other) and breach.at_s == 2.0
