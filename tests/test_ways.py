"""Several ways from one host to another: which there are, which a migration is admitted on, and how it changes to another."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.admission.admission import COMFORTABLE, Held, committed_rates, emptiest_first
from controller.core.admission.schedule import MigrationRequest
from controller.core.coordinator import ANSWER_S, Coordinator
from controller.core.lifecycle.attempts import choose_host, request, reserved_rate, residual
from controller.core.lifecycle.grants import open_flow
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts as f
from controller.core.model.entities import CheckpointFlow
from experiments.results.link_rates import RoutesThen
from experiments.results.rules.network import grants_stay_within_the_share
from experiments.storms.setup import PROTOCOL, QUEUE
from experiments.storms.verdict import context_of
from experiments.worlds.virtual.invariants import Invariants
from experiments.worlds.virtual.world import VirtualWorld
from testbed.errors import InvariantBroken
from testbed.messages import JobSpec
from tests.test_dead_trunks import campuses, reached, some_dead, told
from topologies import presets
from topologies.paths import Routes, Way
from topologies.spec import Campus, DirectedLink, TrafficClass

MB = 1e6


def nodes_of(way: Way) -> list[str]:
    return [way[0].source, *(link.target for link in way)]


# ---------------------------------------------------------------- which ways there are
@given(campuses(), st.lists(st.integers(0, 30), max_size=4), st.integers(1, 4))
def test_ways_are_simple_and_alive_and_the_first_is_the_route(campus: Campus, picks: list[int], most: int) -> None:
    dead = some_dead(campus, picks)
    routes = Routes(campus, dead)
    for a in campus.hosts:
        for b in campus.hosts:
            if a is b:
                continue
            ways = routes.choices(a.name, b.name, most)
            assert ways[0] == routes.route(a.name, b.name) and 1 <= len(ways) <= most
            assert len(set(ways)) == len(ways)
            if b.name not in reached(campus, a.name, dead):
                assert len(ways) == 1
                continue
            for way in ways:
                nodes = nodes_of(way)
                assert (nodes[0], nodes[-1]) == (a.name, b.name) and len(set(nodes)) == len(nodes)
                assert all(y in campus.neighbours[x] for x, y in pairwise(nodes))
                assert not any(frozenset(link) in dead for link in way)
            if most > 1 and len(ways) == 1:  # then every way shares some trunk with all others: one cut parts the two
                assert (
                    any(b.name not in reached(campus, a.name, dead | {frozenset(link)}) for link in ways[0][1:-1])
                    or len(ways[0]) == 2
                )


@given(campuses(), st.lists(st.integers(0, 30), max_size=3), st.randoms(use_true_random=False))
def test_pin_is_kept_until_its_way_dies_and_concerns_its_pair_alone(
    campus: Campus, picks: list[int], draws: random.Random
) -> None:
    routes = Routes(campus)
    a, b = (host.name for host in draws.sample(campus.hosts, 2))
    way = draws.choice(routes.choices(a, b))
    before = {(x.name, y.name): routes.way(x.name, y.name) for x in campus.hosts for y in campus.hosts if x is not y}
    routes.pin(a, b, way)
    for ends, route in before.items():
        assert routes.way(*ends) == (way if ends == (a, b) else route)
    dead = some_dead(campus, picks)
    routes.follow(dead)
    if any(frozenset(link) in dead for link in way):
        assert not routes.pins and routes.way(a, b) == routes.route(a, b)
    else:
        assert routes.way(a, b) == way
    routes.pin(a, b, None)
    assert routes.equals(Routes(campus, dead))


# ---------------------------------------------------------------- admission
@given(campuses(), st.randoms(use_true_random=False))
def test_ways_with_half_empty_links_come_first_and_the_others_by_their_fullest_link(campus, draws) -> None:
    routes, names = Routes(campus), [host.name for host in campus.hosts]
    share = {link: rate * 0.6 for link, rate in campus.capacity_bytes_per_s.items()}
    source, to, other = draws.sample(names, 3) if len(names) > 2 else (*names, names[0])
    size, due_s = draws.choice([0.2, 1.0, 3.0]) * 1e8, draws.uniform(1.0, 8.0)
    ways = routes.choices(source, to, 4)
    asked = MigrationRequest("a", size, due_s, 0.2, ways[0], 0.1, due_s / 2.0)
    beside = [Held("b", routes.way(other, to), 1e8 / due_s)]
    rate, held = size / (due_s - 0.3), committed_rates(beside, 0.0)

    def fullest(way) -> float:
        return max((held.get(link, 0.0) + rate) / share[link] for link in way)

    ordered = emptiest_first(ways, asked, 0.0, share, beside)
    assert sorted(map(ways.index, ordered)) == list(range(len(ways)))
    empty = [way for way in ordered if fullest(way) <= COMFORTABLE]
    assert ordered[: len(empty)] == [way for way in ways if way in empty]
    loads = [fullest(way) for way in ordered[len(empty) :]]
    assert loads == sorted(loads)


# ---------------------------------------------------------------- the virtual campus
def two_leaves(paths: int, *, hosts: int = 7, quiet: bool = True, **changed: object) -> VirtualWorld:
    """Jobs on every host of one leaf, every host of the other is free; two trunks between them."""
    mix = (presets.GpuShare(presets.RTX3090, 1, 1),)
    campus = presets.leaf_spine(2, 2, hosts, access_bytes_per_s=40 * MB, uplink_bytes_per_s=40 * MB, mix=mix)
    world = VirtualWorld(campus, replace(PROTOCOL, paths=paths, **changed), QUEUE, quiet=quiet, after_each=Invariants())
    first, second = ([n for n in world.machines if leaf in campus.neighbours[n]] for leaf in ("l1", "l2"))
    world.start(*first)
    for name in first:
        world.at(1.0, lambda name=name: world.submit(JobSpec(f"of-{name}", 30_000, 0.1, 100_000_000)))
    world.run(5.0)
    world.start(*second)
    world.run(10.0)
    return world


def busy(world: VirtualWorld) -> list[str]:
    return [name for name, host in world.coordinator.cluster.hosts.items() if host.jobs]


def judged(world: VirtualWorld) -> None:
    """What judges know from facts is what the coordinator planned on, and grants fitted there."""
    context = context_of(world, {})
    assert RoutesThen(context.campus, world.facts).history.latest.equals(world.coordinator.cluster.routes)
    assert list(grants_stay_within_the_share(world.facts, context)) == []


def test_migrations_over_two_trunks_keep_their_promises_and_leave_no_way_behind() -> None:
    world = two_leaves(4)
    for name in busy(world):
        world.reclaim(name, 20.0, grace=True)
    world.run(60.0)
    finished = told(world, f.MigrationFinished)
    assert len(finished) == len(told(world, f.MigrationAdmitted)) and all(fact.in_time for fact in finished)
    assert not world.coordinator.cluster.installation.held and not world.env.routes.pins
    assert {tuple(fact.nodes[2:3]) for fact in told(world, f.WayTaken)} == {(), ("s2",)}
    judged(world)


def moving(paths: int = 4) -> VirtualWorld:
    """Three migrations are on their way over two trunks."""
    world = two_leaves(paths, hosts=3)
    for name in busy(world):
        world.reclaim(name, 20.0, grace=True)
    while len(list(sent(world))) < 3:
        world.run(world.now_s + 0.1)
    return world


def until_chosen(world: VirtualWorld) -> None:
    """Until some migration takes another way than the tree's."""
    while not world.coordinator.cluster.installation.held:
        world.run(world.now_s + 0.001)


def sent(world: VirtualWorld) -> list:
    """Migrations that are on their way, as they truly are."""
    return [flow for flow in world.env.network.fluid.flows() if flow.traffic_class is TrafficClass.PLANNED]


@pytest.mark.parametrize(("hot", "takes"), [([], []), (["s1"], ["s2"]), (["s1", "s2"], [])])
def test_migration_leaves_a_trunk_that_others_fill_for_one_that_they_do_not(hot: list[str], takes: list[str]) -> None:
    world = two_leaves(4, hosts=2)
    world.reclaim("h1", 20.0, grace=True)
    world.run(world.now_s + 1.0)
    for rate in (40 * MB, 0.0):  # it does not come back when they stop
        world.decide(ev.LinksMeasured([("l1", spine, rate) for spine in hot]))
        assert [fact.nodes[2] for fact in told(world, f.WayTaken)] == takes


def test_a_move_counts_on_the_widest_way_and_a_job_that_comes_back_on_the_trees() -> None:
    cluster = two_leaves(4, hosts=2).coordinator.cluster
    cluster.capacity.measured({uplinks()[0]: 40 * MB})
    free, job, rule = residual(cluster, reserved_rate), cluster.jobs["of-h1"], cluster.policy.select
    wanted = [request(cluster, job, "h1", 100 * MB, notice_s) for notice_s in (None, 1000.0)]
    back, move = (choose_host(cluster, rule, each, ["h1"], free, 0.5, {"h3", "h4"}) for each in wanted)
    assert back.migration_s > 10.0 * move.migration_s


def test_network_is_sent_the_loads_of_trunks_when_one_has_changed_by_an_eighth() -> None:
    world = two_leaves(4, hosts=2)
    flow = CheckpointFlow("of-h1", "h1", "h3", TrafficClass.PRESYNC, cap_bytes_per_s=0.0)
    open_flow(world.coordinator.cluster, flow)
    sent = []
    for part in (0.1, 0.13, 0.22, 0.0):
        flow.cap_bytes_per_s, world.coordinator.cluster.rates_stale = part * 40 * MB, True
        effects = world.coordinator.handle(ev.Woke(), world.now_s)
        sent.append(any(isinstance(effect, do.SetLoads) for effect in effects))
    assert sent == [False, True, False, True]


def test_order_to_send_over_another_way_comes_when_the_network_has_it() -> None:
    world = two_leaves(4, hosts=3)
    held = []

    def watch() -> None:
        cluster = world.coordinator.cluster
        held.extend(
            key for key, flow in cluster.flows.items() if (flow.source, flow.destination) in cluster.installation.held
        )

    for name in busy(world):
        world.reclaim(name, 20.0, grace=True)
    until_chosen(world)
    watch()
    ways = {(fact.source, fact.destination): fact.nodes for fact in told(world, f.WayTaken)}
    assert ways and not world.env.routes.pins and held
    cluster = world.coordinator.cluster
    assert all(key in cluster.orders for key in held)
    world.run(world.now_s + 0.02)
    assert not cluster.installation.held and not cluster.orders
    assert {ends: nodes_of(way) for ends, way in world.env.routes.pins.items()} == ways


def test_drained_trunk_is_left_before_it_is_cut_and_every_migration_is_in_time() -> None:
    world = moving()
    over = {trunk: [f for f in sent(world) if trunk in f.links] for trunk in uplinks()}
    assert all(over.values())
    world.links.drain("l1", "s1")
    cluster = world.coordinator.cluster
    assert cluster.installation.held and cluster.capacity.draining == {frozenset(("l1", "s1"))}
    both = {link for number in cluster.flows.rows().paths.link for link in [cluster.network.links[number]]}
    assert set(uplinks()) <= both  # what may go over either is paid for on both
    world.run(world.now_s + 0.02)
    assert not cluster.installation.held
    assert not any(uplinks()[0] in flow.links for flow in sent(world)) and len(sent(world)) == 3
    admitted = len(told(world, f.MigrationAdmitted))
    world.links.change("l1", "s1", up=False)
    assert not cluster.capacity.draining and len(told(world, f.MigrationAdmitted)) == admitted == 3
    assert not told(world, f.MigrationDegraded)
    world.run(world.now_s + 2.0)
    world.links.change("l1", "s1", up=True)
    world.run(60.0)
    assert all(fact.in_time for fact in told(world, f.MigrationFinished)) and len(told(world, f.MigrationFinished)) == 3
    assert cluster.routes.equals(Routes(world.env.campus)) and world.env.routes.equals(cluster.routes)
    judged(world)


def uplinks() -> list[DirectedLink]:
    return [DirectedLink("l1", "s1"), DirectedLink("l1", "s2")]


def test_network_that_does_not_answer_has_one_path_until_it_does() -> None:
    world = two_leaves(4, hosts=3)
    asked: list[do.SetWays] = []
    world.links.program = asked.append  # its controller is dead
    for name in busy(world):
        world.reclaim(name, 20.0, grace=True)
    until_chosen(world)
    cluster = world.coordinator.cluster
    waiting = dict(cluster.installation.held)
    assert waiting and asked[-1].ways
    world.run(world.now_s + ANSWER_S + 0.01)
    assert not cluster.installation.answers and not cluster.installation.held and not cluster.routes.pins
    assert asked[-1].ways == [] and asked[-1].number > asked[0].number
    admitted = [flow for flow in cluster.flows.values() if flow.reservation]
    assert admitted and len(cluster.choices("h1", "h6")) == 1
    world.run(60.0)
    assert all(fact.in_time for fact in told(world, f.MigrationFinished))
    world.decide(ev.WaysSet(asked[-1].number))
    assert len(cluster.choices("h1", "h6")) == 2


def test_coordinator_that_begins_again_has_the_ways_of_its_journal_and_tells_the_network() -> None:
    world = two_leaves(4, hosts=3)
    events: list[tuple[float, ev.Event]] = []
    fresh = [Coordinator(world.env.campus, world.protocol, world.terms, lambda: 0.5) for _ in range(2)]
    way = Routes(world.env.campus).choices("h1", "h6")[1]
    for core in fresh:
        core.cluster.set_way("h1", "h6", way)
    told_by = [core.handle(ev.DrainAsked([("l2", "s1")]), 1.0) for core in fresh]
    assert told_by[0] == told_by[1] and not events
    asked = [effect for effect in told_by[0] if isinstance(effect, do.SetWays)]
    assert [pinned.nodes for pinned in asked[-1].ways] == [["h1", "l1", "s2", "l2", "h6"]]
    assert asked[-1].draining == [("l2", "s1")]
    again = fresh[0].handle(ev.Restarted(1.0), 2.0) + fresh[0].handle(ev.Woke(), 30.0)
    assert [effect for effect in again if isinstance(effect, do.SetWays)][-1].ways == asked[-1].ways


def test_invariants_notice_ways_that_the_network_does_not_have() -> None:
    world = two_leaves(4, hosts=3)
    for name in busy(world):
        world.reclaim(name, 20.0, grace=True)
    world.run(world.now_s + 0.02)
    world.env.routes.pin_all({})
    with pytest.raises(InvariantBroken, match="planned on as if"):
        world.run(world.now_s + 1.0)
