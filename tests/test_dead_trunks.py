"""Trunks that die: one rule for tables, plans and the virtual campus; migrations that are moved with their promises."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.coordinator import Coordinator
from controller.core.model import facts as f
from controller.core.model.cluster import Cluster
from controller.core.model.events import LinksMeasured
from controller.openflow.routes import tables
from experiments.inputs.scenario import Scenario
from experiments.inputs.scenario.demo import demo_scenario
from experiments.inputs.scenario.parts import LinkEvent
from experiments.results.rules.network import grants_stay_within_the_share
from experiments.storms.play import context_of
from experiments.storms.setup import PROTOCOL, QUEUE
from experiments.worlds.virtual.invariants import Invariants
from experiments.worlds.virtual.world import VirtualWorld
from testbed.emulation.description.openflow import topology_of
from testbed.emulation.description.plan import plan
from testbed.errors import InvariantBroken
from testbed.messages import JobSpec
from testbed.model.network import FluidNetwork
from tests.test_openflow_routes import EF, addressed, ways
from topologies import files, presets
from topologies.addresses import building_addresses
from topologies.paths import RouteHistory, Routes, dead_trunks, junctions
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
    return Campus(
        "c", (Building("b"),), tuple(hosts), switches, tuple(links), (GPU,), fabric=Fabric.OPENVSWITCH
    )


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
            assert len(set(nodes)) == len(nodes) and all(
                y in campus.neighbours[x] for x, y in pairwise(nodes)
            )
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


@pytest.mark.parametrize("seed", range(5))
def test_flow_on_another_path_gets_what_a_new_one_there_would(seed: int) -> None:
    draws = random.Random(seed)
    links = [DirectedLink(*ends) for ends in ("ab", "bd", "ac", "cd", "de")]
    capacity = {link: draws.uniform(5.0, 20.0) for link in links}
    upper, lower = (links[0], links[1], links[4]), (links[2], links[3], links[4])
    moved, fresh = FluidNetwork(capacity), FluidNetwork(capacity)
    classes, caps = list(TrafficClass), [draws.choice([3.0, 8.0, float("inf")]) for _ in range(6)]
    for number, cap in enumerate(caps):
        size = 1000.0 if number % 2 else float("inf")
        moved.start(f"{number}", upper, classes[number % 4], size, cap, 0.0)
    for number in range(0, 6, draws.choice([1, 2, 3])):
        moved.reroute(f"{number}", lower, 2.0)
    for number, cap in enumerate(caps):
        flow = moved.flow(f"{number}")
        fresh.start(f"{number}", flow.links, classes[number % 4], flow.size_bytes, cap, 0.0)
    for number in range(6):
        assert moved.flow(f"{number}").rate_bytes_per_s == pytest.approx(
            fresh.flow(f"{number}").rate_bytes_per_s
        )
    for link in links:
        assert moved.load_bytes_per_s(link) == pytest.approx(fresh.load_bytes_per_s(link))
    gone, before = moved.stop("1", 5.0)[0], FluidNetwork(capacity)
    for number, cap in enumerate(caps):
        before.start(f"{number}", upper, classes[number % 4], float("inf"), cap, 0.0)
    early, late = before.flow("1").rate_bytes_per_s, fresh.flow("1").rate_bytes_per_s
    assert gone.moved_bytes == pytest.approx(2.0 * early + 3.0 * late)


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


def told(world: VirtualWorld, kind: type[f.Fact]) -> list[f.Fact]:
    return [fact for _, fact in world.facts if type(fact) is kind]


def test_migration_goes_on_by_the_other_trunk_with_its_grant_reserved_there() -> None:
    world = moving(20.0)
    cluster = world.coordinator.cluster
    (flow,) = cluster.flows.values()
    before = cluster.routes.route(flow.source, flow.destination)
    trunk = next(link for link in before if "s1" in link)
    world.set_link(*trunk, 0.0)  # a fault: the network sees it, and tells
    after = cluster.routes.route(flow.source, flow.destination)
    assert trunk not in after and world.env.routes.route(flow.source, flow.destination) == after
    (real,) = world.env.network.fluid.flows_from(flow.source)
    assert real.links[:-1] == after and real.rate_bytes_per_s > 0.0
    assert cluster.capacity.share[trunk] == 0.0 and cluster.flows.paths()[1].link.tolist() == list(
        cluster.network.path(after)
    )
    world.run(60.0)
    (finished,) = told(world, f.MigrationFinished)
    assert finished.in_time and not told(world, f.MigrationDegraded)
    world.set_link(*trunk, 1.0)
    assert cluster.routes.route(flow.source, flow.destination) == before
    assert list(grants_stay_within_the_share(world.facts, context_of(world, {}))) == []


def test_checkpoints_are_planned_on_what_the_trunk_that_they_take_has_left_also_after_one_died() -> None:
    """Others ask for 7 of 8 MB/s of the second trunk: when the first has died P1 plans at once to send as much, and seldom."""
    world = VirtualWorld(two_uplinks(), PROTOCOL, QUEUE, after_each=Invariants())
    world.start()
    world.at(1.0, lambda: world.submit(JobSpec("j", 3000, 0.1, 20_000_000)))
    world.run(8.0)
    cluster = world.coordinator.cluster
    job, sent = cluster.jobs["j"], world.env.network.fluid
    (stream,) = [flow for flow in cluster.flows.values() if flow.source == job.host]
    way = cluster.routes.way(stream.source, stream.destination)
    (trunk,) = [link for link in way if link.target in ("s1", "s2")]
    crowded = DirectedLink(trunk.source, "s2" if trunk.target == "s1" else "s1")
    world.decide(LinksMeasured([(*crowded, 7 * MB)]))
    before_s, standby = job.interval_s, job.standby
    assert before_s is not None and stream.rate_bytes_per_s > 4 * MB
    world.set_link(*trunk, 0.0)
    assert 0.5 * MB < stream.rate_bytes_per_s <= cluster.capacity.spendable[crowded] < (8 - 0.97 * 7) * MB
    assert job.standby == standby and job.interval_s is not None and job.interval_s > 3.0 * before_s
    while not any(flow.links[0].source == job.host for flow in sent.flows()):
        world.run(world.now_s + 0.1)
    world.run(world.now_s + 0.2)  # one that was under way hears of its rate
    (real,) = sent.flows_from(stream.source)
    assert crowded in real.links and real.rate_bytes_per_s <= stream.rate_bytes_per_s


def test_migration_without_a_way_is_degraded_at_once() -> None:
    world = moving(20.0)
    (flow,) = world.coordinator.cluster.flows.values()
    at_s = world.now_s
    leaf = next(iter(world.env.campus.neighbours[flow.source]))
    world.set_link(leaf, "s1", 0.0)
    assert not told(world, f.MigrationDegraded)
    world.set_link(leaf, "s2", 0.0)
    degraded = [(when, fact) for when, fact in world.facts if isinstance(fact, f.MigrationDegraded)]
    assert [when for when, _ in degraded] == [at_s]
    assert not any(
        flow.traffic_class is TrafficClass.PLANNED for flow in world.coordinator.cluster.flows.values()
    )
    for spine in ("s1", "s2"):
        world.after(1.0, lambda spine=spine: world.set_link(leaf, spine, 1.0))
    world.run(at_s + 19.0)
    assert len(told(world, f.MigrationAdmitted)) == 2  # once it can be heard again


def test_migration_whose_destination_is_cut_off_goes_elsewhere() -> None:
    world = moving(20.0)
    (flow,) = world.coordinator.cluster.flows.values()
    leaf = next(iter(world.env.campus.neighbours[flow.destination]))
    for spine in ("s1", "s2"):
        world.set_link(leaf, spine, 0.0)
    (other,) = world.coordinator.cluster.flows.values()
    assert other.source == flow.source and other.destination != flow.destination
    world.run(60.0)
    (finished,) = told(world, f.MigrationFinished)
    assert finished.in_time and finished.destination == other.destination


def with_cuts(campus: Campus, cuts: list[tuple[float, tuple[str, str], bool]], seed: int = 3) -> Scenario:
    base = demo_scenario(hosts=6, seconds=60.0, seed=seed)
    minute = base.duration_s / 60.0
    names = [host.name for host in campus.hosts_of(Role.VOLUNTEER)]
    owners = replace(base.owners, script=(), loyal=())
    events = tuple(LinkEvent(at * minute, ends, up=up) for at, ends, up in cuts)
    jobs = replace(base.jobs, memory=replace(base.jobs.memory, maximum=20e9))
    assert names
    return replace(base, campus=campus, owners=owners, jobs=jobs, events=events, research=())


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


def test_coordinator_that_begins_again_plans_on_the_routes_of_its_journal() -> None:
    from controller.core.model import events as ev

    scenario = with_cuts(files.load("example:twocores"), [])
    played = scenario.played()
    cores = [Coordinator(played.campus, played.protocol, played.queue, lambda: 0.5) for _ in range(2)]
    event = ev.LinksChanged([("library", "core1", 0.0), ("core1", "library", 0.0)])
    for core in cores:
        core.handle(event, 1.0)
    assert cores[0].cluster.routes.dead == {frozenset(("library", "core1"))}
    assert cores[0].cluster.index.places.up.tolist() == cores[1].cluster.index.places.up.tolist()
    assert (
        cores[0].cluster.index.places.up.tolist()
        != Coordinator(
            played.campus, played.protocol, played.queue, lambda: 0.5
        ).cluster.index.places.up.tolist()
    )
    assert dead_trunks(cores[0].cluster.capacity.bandwidth.capacity) == cores[0].cluster.routes.dead


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("controller.core.lifecycle.link_changes._replan_moves", "it moves over a dead trunk"),
        ("controller.core.model.cluster.Cluster.links_changed", "planned on as if"),
    ],
)
def test_world_notices_a_coordinator_that_does_not_follow(
    target: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow = Cluster.links_changed

    def as_a_tree(cluster: Cluster, wire_bytes_per_s: dict[DirectedLink, float]) -> bool:
        cluster.routes.has_choice = False
        return follow(cluster, wire_bytes_per_s)

    world = moving(20.0)
    (flow,) = world.coordinator.cluster.flows.values()
    leaf = next(iter(world.env.campus.neighbours[flow.destination]))
    monkeypatch.setattr(target, as_a_tree if "Cluster" in target else lambda *_: None)
    with pytest.raises(InvariantBroken, match=said):
        for spine in ("s1", "s2"):
            world.set_link(leaf, spine, 0.0)
            world.run(world.now_s + 0.1)
