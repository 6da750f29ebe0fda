"""Routes of several paths, judged by packets that are sent through the tables on paper."""

import random
from collections import Counter
from collections.abc import Iterable
from itertools import combinations, pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.openflow.forwarding import way_of_one, ways_of_many
from controller.openflow.routes import (
    CLASSIFY,
    MOST_SLOTS,
    SLOTS,
    live_neighbours,
    research_hops_to,
    tables,
    tables_meanwhile,
)
from controller.openflow.tables import (
    AnswerArp,
    Drop,
    GotoTable,
    GroupKind,
    Installed,
    Output,
    SwitchTables,
    ToGroup,
    after,
    difference,
    staged,
)
from testbed.emulation.description.openflow import topology_of
from testbed.emulation.description.plan import plan
from topologies.openflow import Station, Topology, Trunk, WayPin
from topologies.paths import NONE_DEAD, distances_to, tree_of, ways_beside
from topologies.presets import fat_tree

HOSTS_PORT = 1024
EF = {"eth_type": 0x0800, "ip_dscp": 46}
BEST_EFFORT = {"eth_type": 0x0800, "ip_dscp": 0}
Dead = frozenset[frozenset[str]]
Loads = dict[tuple[str, str], float]
DRAWS = st.randoms(use_true_random=False)


def picked(most: int) -> st.SearchStrategy[list[int]]:
    """Numbers of trunks."""
    return st.lists(st.integers(0, 30), max_size=most)


def as_installed(tables: SwitchTables) -> Installed:
    """What a switch reports that has taken these tables."""
    return Installed(frozenset(tables.rules), dict(tables.groups))


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Connected graphs of 2 to 9 switches, hosts on some of them."""
    names = [f"s{i}" for i in range(draw(st.integers(2, 9)))]
    pairs = {frozenset((names[i], names[draw(st.integers(0, i - 1))])) for i in range(1, len(names))}
    spare = [frozenset((a, b)) for i, a in enumerate(names) for b in names[:i]]
    pairs |= set(draw(st.lists(st.sampled_from(spare), max_size=10)))
    used = dict.fromkeys(names, 0)
    trunks = []
    for pair in draw(st.permutations(sorted(pairs, key=sorted))):
        a, b = sorted(pair)
        used[a] += 1
        used[b] += 1
        trunks.append(Trunk(a, used[a], b, used[b], draw(st.sampled_from([1e8, 1e9, 2.5e9]))))
    at = draw(st.lists(st.sampled_from(names), min_size=2, max_size=6))
    stations = tuple(
        Station(f"h{n}", s, HOSTS_PORT, f"02:00:0a:00:00:{n:02x}", f"10.0.0.{n}") for n, s in enumerate(at, 1)
    )
    return Topology({n: i for i, n in enumerate(names, 1)}, tuple(trunks), stations, draw(st.sampled_from(names)))


def lookup(switch: SwitchTables, packet: dict[str, object]) -> object:
    """What the pipeline does with a packet; Drop where no rule matches."""
    table = CLASSIFY
    while True:
        fitting = [r for r in switch.rules.values() if r.table == table and all(packet.get(k) == v for k, v in r.match)]
        if not fitting:
            return Drop()
        rule = max(fitting, key=lambda r: r.priority)
        assert [r.priority for r in fitting].count(rule.priority) == 1
        if not isinstance(rule.action, GotoTable):
            return rule.action
        assert rule.action.table > table
        table = rule.action.table


def ways(
    topology: Topology, packet: dict[str, object], source: str, made: dict[str, SwitchTables], dead: Dead
) -> Iterable[list[str]]:
    """Every way that a packet from a switch's hosts may take, to where it leaves the network or is lost (the last is "lost")."""
    neighbour = {(s, port): n for s, ports in topology.ports.items() for n, port in ports.items()}

    def step(way: list[str], port_in: int) -> Iterable[list[str]]:
        here = way[-1]
        assert way.count(here) == 1, f"loop: {way}"
        action = lookup(made[here], {**packet, "in_port": port_in})
        ports: list[int] = []
        if isinstance(action, Output):
            ports = [action.port]
        elif isinstance(action, ToGroup):
            group = made[here].groups[action.group]
            up = [b.port for b in group.buckets if frozenset((here, neighbour[here, b.port])) not in dead]
            ports = list(dict.fromkeys(up)) if group.kind is GroupKind.SELECT else up[:1]
        ports = [p for p in ports if p != port_in]
        if not ports:
            yield [*way, "lost"]
        for port in ports:
            if (here, port) not in neighbour:  # hosts, or a bridge with hosts
                yield way
            else:
                there = neighbour[here, port]
                yield from step([*way, there], topology.ports[there][here])

    port = next(station.port for station in topology.stations if station.mac == packet["eth_src"])
    yield from step([source], port)


def reachable(topology: Topology, a: str, b: str, dead: Dead) -> int | None:
    """Live trunks between two switches, or None; by a search of its own."""
    depth, edge = 0, {a}
    seen = {a}
    while edge:
        if b in edge:
            return depth
        edge = {n for s in edge for n in topology.ports[s] if frozenset((s, n)) not in dead and n not in seen}
        seen |= edge
        depth += 1
    return None


def some_dead(topology: Topology, picks: list[int]) -> Dead:
    return frozenset(topology.trunks[p % len(topology.trunks)].ends for p in picks)


def some_loads(topology: Topology, draws: random.Random) -> Loads:
    """Up to one and a half times what a trunk carries, on some of them."""
    ways = [(a, b, t.rate_bytes_per_s) for t in topology.trunks for a, b in permutations(sorted(t.ends))]
    return {(a, b): draws.random() * 1.5 * rate for a, b, rate in ways if draws.random() < 0.5}


def addressed(traffic: dict[str, object], a: Station, b: Station) -> dict[str, object]:
    return {**traffic, "eth_src": a.mac, "eth_dst": b.mac, "ipv4_src": a.address, "ipv4_dst": b.address}


def apart(topology: Topology) -> list[tuple[Station, Station]]:
    """Pairs of hosts at different switches, in both directions."""
    return [(a, b) for a, b in permutations(topology.stations, 2) if a.switch != b.switch]


def some_pins(topology: Topology, out: Dead, draws: random.Random, first: int = 1) -> list[WayPin]:
    """Ways of some pairs of hosts, as a coordinator picks them: the tree's is among them where there is one."""
    live, pins, pairs = live_neighbours(topology, out), [], apart(topology)
    for a, b in draws.sample(pairs, min(len(pairs), draws.randint(0, 4))):
        if reachable(topology, a.switch, b.switch, out) is None:
            continue
        tree = tree_of(a.switch, topology.switches, live)
        came, todo = {a.switch: [a.switch]}, [a.switch]
        for node in todo:
            for near in tree[node]:
                if near not in came:
                    came[near] = [*came[node], near]
                    todo.append(near)
        way = draws.choice(ways_beside(came[b.switch], live, 4))
        pins.append(WayPin(first + len(pins), (a.host, *way, b.host)))
    return pins


@given(topologies(), picked(3), DRAWS)
def test_pinned_packets_take_the_way_that_was_charged_and_all_others_their_own(
    topology: Topology, picks: list[int], draws: random.Random
) -> None:
    dead = some_dead(topology, picks)
    pins = some_pins(topology, dead if draws.random() < 0.5 else NONE_DEAD, draws)
    plain, made = tables(topology, dead), tables(topology, dead, pins)
    by_pair = {(pin.nodes[0], pin.nodes[-1]): list(pin.nodes[1:-1]) for pin in pins}
    for a, b in apart(topology):
        (way,) = ways(topology, addressed(EF, a, b), a.switch, made, dead)
        pinned = by_pair.get((a.host, b.host), [])
        if pinned and all(frozenset(ends) not in dead for ends in pairwise(pinned)):
            assert way == pinned
        else:
            assert [way] == list(ways(topology, addressed(EF, a, b), a.switch, plain, dead))
        packet = addressed(BEST_EFFORT, a, b)
        in_both = (list(ways(topology, packet, a.switch, its, dead)) for its in (made, plain))
        assert next(in_both) == next(in_both)
    for switch, its in made.items():
        crossing = sum(switch in pin.nodes[:-2] for pin in pins)
        assert len(its.rules) <= len(plain[switch].rules) + crossing
        assert len(its.groups) <= len(plain[switch].groups) + crossing
        assert set(its.stages) <= its.rules.keys() | its.groups.keys()


@pytest.mark.parametrize(
    ("way", "cut"), [(["s1", "s2", "s4", "s3"], "s3"), (["s2", "s3"], "s1")], ids=["pinned", "by the tree"]
)
def test_a_packet_goes_around_a_trunk_of_its_way_that_has_just_died_and_not_into_a_dead_end(
    way: list[str], cut: str
) -> None:
    names = ("s0", "s1", "s2", "s3", "s4")
    pairs = enumerate([("s0", "s2"), *combinations(names[1:], 2)], 1)
    trunks = tuple(Trunk(a, number, b, number, 1e9) for number, (a, b) in pairs)
    a, b = (Station(f"h{n}", s, HOSTS_PORT, f"02:00:0a:00:00:0{n}", f"10.0.0.{n}") for n, s in ((1, way[0]), (2, "s3")))
    mesh = Topology({name: number for number, name in enumerate(names, 1)}, trunks, (a, b), "s1")
    pins = [WayPin(1, ("h1", "s1", "s2", "s3", "h2"))] if way[0] == "s1" else []
    dead = frozenset({frozenset({"s2", cut})})
    assert list(ways(mesh, addressed(EF, a, b), way[0], tables(mesh, pins=pins), dead)) == [way]


@given(topologies(), st.integers(0, 30), DRAWS)
def test_no_packet_of_the_own_classes_circles_while_a_dead_trunk_is_not_yet_known(
    topology: Topology, pick: int, draws: random.Random
) -> None:
    """With pinned ways and without: `ways` fails on a loop."""
    dead = some_dead(topology, [pick])
    for pins in ([], some_pins(topology, NONE_DEAD, draws)):
        made = tables(topology, NONE_DEAD, pins)
        for a, b in apart(topology):
            (way,) = ways(topology, addressed(EF, a, b), a.switch, made, dead)
            assert len(way) > 1 and way[-1] in ("lost", b.switch)


@given(topologies(), picked(2), picked(2), DRAWS)
def test_planned_change_loses_no_packet_at_any_moment(
    topology: Topology, picks: list[int], later: list[int], draws: random.Random
) -> None:
    """Trunks that are left still carry; switches take each stage in any order, and packets are sent at every step."""
    out, then = some_dead(topology, picks), some_dead(topology, later)
    before, pins = some_pins(topology, out, draws), some_pins(topology, then, draws, first=10)
    have, wanted = tables(topology, out, before), tables(topology, then, pins)
    meanwhile = tables_meanwhile(topology, then, pins, before)
    pairs = [
        (a, b)
        for a, b in apart(topology)
        if None not in (reachable(topology, a.switch, b.switch, gone) for gone in (out, then))
    ]
    state = {switch: (dict(its.rules), dict(its.groups)) for switch, its in have.items()}
    known = {switch: as_installed(its) for switch, its in have.items()}

    def take(switch: str, update: object) -> None:
        rules, groups = state[switch]
        groups |= update.groups_added | update.groups_changed
        for rule in update.rules_added:  # one of the same match and priority is replaced
            same = (rule.table, rule.priority, rule.match)
            for cookie in [c for c, r in rules.items() if (r.table, r.priority, r.match) == same]:
                del rules[cookie]
            rules[rule.cookie] = rule
        for cookie in update.cookies_deleted:
            rules.pop(cookie, None)
        for number in update.groups_deleted:
            assert not any(rule.action == ToGroup(number) for rule in rules.values())
            del groups[number]
        known[switch] = after(known[switch], update)

    def all_arrive() -> None:
        made = {switch: SwitchTables(rules, groups) for switch, (rules, groups) in state.items()}
        for a, b in pairs:
            for traffic in (EF, BEST_EFFORT):
                for way in ways(topology, addressed(traffic, a, b), a.switch, made, NONE_DEAD):
                    assert way[-1] == b.switch, (a.host, b.host, way)

    parts = {s: staged(difference(known[s], meanwhile[s]), meanwhile[s])[:-1] for s in topology.switches}
    for stage in range(max(map(len, parts.values()))):
        for switch in draws.sample(sorted(parts), len(parts)):
            if stage < len(parts[switch]) and len(parts[switch][stage]):
                take(switch, parts[switch][stage])
                all_arrive()
    for switch in draws.sample(sorted(parts), len(parts)):  # when no packet is on an old way
        take(switch, difference(known[switch], wanted[switch]))
        all_arrive()
    for switch, its in wanted.items():
        assert (state[switch][0].keys(), state[switch][1]) == (its.rules.keys(), its.groups)


@given(topologies(), picked(4), DRAWS)
def test_every_packet_arrives_by_a_loop_free_way_wherever_a_live_path_exists(
    topology: Topology, picks: list[int], draws: random.Random
) -> None:
    dead, loads = some_dead(topology, picks), some_loads(topology, draws)
    made = tables(topology, dead, (), loads)
    for a, b in apart(topology):
        steps = reachable(topology, a.switch, b.switch, dead)
        for traffic in (EF, BEST_EFFORT):
            packet = {**traffic, "eth_src": a.mac, "eth_dst": b.mac}
            for way in ways(topology, packet, a.switch, made, dead):
                assert way[-1] == ("lost" if steps is None else b.switch)
                if traffic is BEST_EFFORT and steps is not None:
                    assert len(way) == steps + 1


@given(topologies(), picked(3), DRAWS)
def test_loads_move_research_alone_and_away_from_where_they_are(
    topology: Topology, picks: list[int], draws: random.Random
) -> None:
    dead, loads = some_dead(topology, picks), some_loads(topology, draws)
    pins = some_pins(topology, dead, draws)
    loaded = draws.choice([(a, b) for trunk in topology.trunks for a, b in permutations(trunk.ends)])
    more = loads | {loaded: loads.get(loaded, 0.0) + draws.random() * 2e9}
    plain, before, after_it = (tables(topology, dead, pins, given) for given in ({}, loads, more))
    for switch in topology.switches:
        its = [made[switch] for made in (plain, before, after_it)]
        assert its[0].rules == its[1].rules == its[2].rules and its[0].stages == its[1].stages == its[2].stages
        assert its[0].groups.keys() == its[1].groups.keys() == its[2].groups.keys()
        for number, first in its[0].groups.items():
            then, now = its[1].groups[number], its[2].groups[number]
            if first.kind is GroupKind.FAST_FAILOVER:
                assert first == then == now
                continue
            assert now == then or now.is_weighed_anew(then)
            assert {len(g.buckets) for g in (then, now)} in ({1}, {SLOTS}, {MOST_SLOTS})
            assert {bucket.weight for g in (then, now) for bucket in g.buckets} == {1}
            if switch == loaded[0]:
                slots = [Counter(bucket.port for bucket in g.buckets) for g in (then, now)]
                port = topology.ports[switch][loaded[1]]
                assert slots[1][port] <= slots[0][port]
                moved = sum(a != b for a, b in zip(then.buckets, now.buckets, strict=True))
                assert moved <= (len(slots[0]) - 1) * (slots[0][port] - slots[1][port])
        update = difference(as_installed(its[1]), its[2])
        assert len(update) == len(update.groups_changed)


@given(topologies(), picked(3), DRAWS)
def test_research_of_the_virtual_campus_is_shared_as_the_groups_of_the_switches_share_it(
    topology: Topology, picks: list[int], draws: random.Random
) -> None:
    """Many connections: the part on each trunk is that of the groups' weights, switch by switch. One: its way is one of these."""
    dead, loads = some_dead(topology, picks), some_loads(topology, draws)
    made, live = tables(topology, dead, (), loads), live_neighbours(topology, dead)
    neighbour = {(s, port): n for s, ports in topology.ports.items() for n, port in ports.items()}

    def crossed(here: str, port_in: int, packet: dict[str, object], part: float) -> None:
        action = lookup(made[here], {**packet, "in_port": port_in})
        if isinstance(action, ToGroup):
            buckets = made[here].groups[action.group].buckets
            for port, slots in Counter(bucket.port for bucket in buckets).items():
                there, on = neighbour[here, port], part * slots / len(buckets)
                expected[here, there] = expected.get((here, there), 0.0) + on
                crossed(there, topology.ports[there][here], packet, on)

    for a, b in apart(topology):
        if reachable(topology, a.switch, b.switch, dead) is None:
            continue
        packet, expected = addressed(BEST_EFFORT, a, b), dict[tuple[str, str], float]()
        crossed(a.switch, a.port, packet, 1.0)
        hops = research_hops_to(topology, distances_to(b.switch, live.__getitem__), live, loads)
        found = ways_of_many(hops, a.switch)
        assert sum(part for part, _ in found) == pytest.approx(1.0)
        assert len(found) <= len(expected)
        on_trunk: dict[tuple[str, str], float] = {}
        possible = list(ways(topology, packet, a.switch, made, dead))
        for part, way in found:
            assert way in possible
            for ends in pairwise(way):
                on_trunk[ends] = on_trunk.get(ends, 0.0) + part
        assert on_trunk == pytest.approx(expected, abs=1e-6)
        assert way_of_one(hops, a.switch, lambda _: draws.random()) in possible


@given(topologies(), picked(3), picked(3))
def test_difference_leads_from_any_state_to_the_wanted_one(
    topology: Topology, before: list[int], after: list[int]
) -> None:
    old, new = tables(topology, some_dead(topology, before)), tables(topology, some_dead(topology, after))
    for switch in topology.switches:
        installed = as_installed(old[switch])
        update = difference(installed, new[switch])
        cookies = set(installed.cookies) | {r.cookie for r in update.rules_added}
        cookies -= set(update.cookies_deleted)
        groups = {**installed.groups, **update.groups_added, **update.groups_changed}
        for number in update.groups_deleted:
            del groups[number]
        assert (cookies, groups) == (set(new[switch].rules), new[switch].groups)
        used = {r.action.group for r in new[switch].rules.values() if isinstance(r.action, ToGroup)}
        assert used <= new[switch].groups.keys()
        assert not len(difference(as_installed(new[switch]), new[switch]))


def test_a_group_that_a_stranger_made_is_replaced_and_his_rules_are_deleted() -> None:
    update = difference(Installed(frozenset({7}), {3: None, 99: None}), tables(square())["a"])
    assert (list(update.groups_changed), update.groups_deleted) == ([3], [99])
    assert update.cookies_deleted == [7]


def square() -> Topology:
    """a and b, each on both c1 and c2."""
    trunks = (
        Trunk("a", 1, "c1", 1, 1e9), Trunk("a", 2, "c2", 1, 2e9), Trunk("b", 1, "c1", 2, 1e9), Trunk("b", 2, "c2", 2, 2e9),
    )  # fmt: skip
    stations = (
        Station("h1", "a", HOSTS_PORT, "02:00:0a:00:00:01", "10.0.0.1"),
        Station("h2", "b", HOSTS_PORT, "02:00:0a:00:00:02", "10.0.0.2"),
        Station("h3", "a", HOSTS_PORT, "02:00:0a:00:00:03", "10.0.0.3"),
    )
    return Topology({"a": 1, "b": 2, "c1": 3, "c2": 4}, trunks, stations, "c1")


@pytest.mark.parametrize(
    ("loads", "slots"),
    [
        ({}, {1: 5, 2: 11}),  # by the rates of the trunks
        ({("a", "c2"): 1.5e9}, {1: 11, 2: 5}),
        ({("c2", "b"): 1.5e9}, {1: 11, 2: 5}),
        ({("b", "c2"): 1.5e9}, {1: 5, 2: 11}),  # the other direction
        ({("a", "c2"): 5e9}, {1: 14, 2: 2}),  # a sixteenth of its rate is left
    ],
)
def test_research_is_shared_by_what_grants_leave_here_and_further_on(loads: Loads, slots: dict[int, int]) -> None:
    groups = tables(square(), loads=loads)["a"].groups.values()
    (share,) = [group for group in groups if group.kind is GroupKind.SELECT]
    assert Counter(bucket.port for bucket in share.buckets) == slots


def test_switches_in_a_row_do_not_choose_alike_by_the_same_hash() -> None:
    """A connection's hash is the same at every switch of Open vSwitch: all core switches of a fat tree are used all the same."""
    topology = topology_of(plan(fat_tree(4)))
    made, station = tables(topology), topology.station_of
    neighbour = {(s, port): n for s, ports in topology.ports.items() for n, port in ports.items()}
    for a, b in (("h1", "h16"), ("h5", "h3"), ("h10", "h2")):
        used = set()
        for slot in range(SLOTS):
            here, port_in = station[a].switch, station[a].port
            for _ in range(2):
                packet = {**addressed(BEST_EFFORT, station[a], station[b]), "in_port": port_in}
                action = lookup(made[here], packet)
                there = neighbour[here, made[here].groups[action.group].buckets[slot].port]
                here, port_in = there, topology.ports[there][here]
            used.add(here)
        assert used == {"c1", "c2", "c3", "c4"}


@pytest.mark.parametrize(
    ("asked", "action"),
    [
        ("10.0.0.2", AnswerArp("02:00:0a:00:00:02", "10.0.0.2")),
        ("10.0.0.3", Drop()),  # behind the port that asks: it answers itself
        ("10.0.0.9", Drop()),
    ],
)
def test_arp_is_answered_for_hosts_elsewhere_only(asked: str, action: object) -> None:
    made = tables(square())["a"]
    frame = {"in_port": HOSTS_PORT, "eth_src": "02:00:0a:00:00:01", "eth_type": 0x0806}
    packet = {**frame, "arp_op": 1, "arp_tpa": asked}
    assert lookup(made, packet) == action


def test_tables_stay_within_two_rules_a_host_and_arp() -> None:
    topology = topology_of(plan(fat_tree(4)))
    hosts = len(topology.stations)
    for name, switch in tables(topology).items():
        at = len(topology.stations_at[name])
        assert len(switch.rules) <= 5 + 2 * hosts + (hosts + at if at else 0)
        assert len(switch.groups) <= 2 * len({s.switch for s in topology.stations})
