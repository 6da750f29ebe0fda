"""Networks of switches that nobody has tried by hand: a backbone and a fat tree, live; trunks are cut, daemons killed.

UNSEEN="21 22 23" pytest tests/test_unseen_campuses_live.py (other seeds are other campuses)
"""

from __future__ import annotations

import os
import random
import signal
import time
from itertools import pairwise

import pytest

from testbed.emulation.campus import LiveCampus
from testbed.emulation.kernel.openvswitch import missing_programs
from tests.live_campus import live
from tests.test_dying_trunks_live import DAEMONS
from topologies import files
from topologies.paths import Routes
from topologies.presets import fat_tree
from topologies.spec import Campus

pytestmark = [
    *live,
    pytest.mark.skipif(bool(missing_programs()), reason=f"Open vSwitch lacks {missing_programs()}"),
]
SEEDS = os.environ.get("UNSEEN", "1").split()
RESTARTED_WITHIN_S = 10.0  # each is started again after a second, if it has run for as long
EF, BEST_EFFORT = 184, 0  # as ping's -Q wants them


def backbone() -> Campus:
    """A country's network: eight cities of four or five places, half of them rings; a ladder joins them, and some hang on a
    single line. Each place has one volunteer."""
    edges: list[tuple[int, int, float]] = []
    places, cities = 0, []
    for size in (5, 4, 5, 4, 4, 5, 4, 5):
        city = list(range(places, places + size))
        places += size
        cities.append(city)
        edges += [(a, b, 2.5) for a, b in pairwise(city)]
        if size == 5:
            edges.append((city[-1], city[0], 1.0))
    edges += [(a[0], b[0], 10.0) for a, b in pairwise(cities)]
    edges += [(a[1], b[1], 10.0) for a, b in zip(cities[::2], cities[2::2], strict=False)]
    edges.append((cities[0][0], cities[-1][0], 40.0))
    lines = [
        'name = "backbone"',
        'fabric = "openvswitch"',
        'gpu_models.a = { memory = "24 GB", compute_capability = 8.6 }',
    ]
    lines.append(f"buildings = {[f'b{n}' for n in range(places)]}")
    lines.append("switches = [")
    lines += [f'    {{ name = "s{n}", tier = "distribution", building = "b{n}" }},' for n in range(places)]
    lines += ["]", "hosts = ["]
    cable = 'rate = "1 Gbit/s"'
    lines += [
        f'    {{ name = "h{n}", building = "b{n}", gpu_model = "a", link_to = "s{n}", {cable} }},'
        for n in range(places)
    ]
    lines.append(
        f'    {{ name = "coord", building = "b0", role = "coordinator", gpus = 0, link_to = "s0", {cable} }},'
    )
    lines += ["]", "links = ["]
    lines += [f'    {{ between = ["s{a}", "s{b}"], rate = "{rate} Gbit/s" }},' for a, b, rate in edges]
    return files.loads("\n".join([*lines, "]"]))


def spared(campus: Campus, draws: random.Random, most: int) -> list[tuple[str, str]]:
    """Trunks of programmed switches that can be cut together, and every host still has a way to every other."""
    switches = campus.switch_by_name
    trunks = [(link.a, link.b) for link in campus.links if link.a in switches and link.b in switches]
    cut: list[tuple[str, str]] = []
    for trunk in draws.sample(trunks, len(trunks)):
        routes = Routes(campus, frozenset(map(frozenset, [*cut, trunk])))
        if len(cut) < most and all(routes.is_live("coord", host.name) for host in campus.hosts):
            cut.append(trunk)
    return cut


def unanswered(net: LiveCampus, pairs: list[tuple[str, str]]) -> list[tuple[str, str, int, str]]:
    """Pairs between which none of three pings is answered, of either kind of traffic, and what the last one says."""
    missing = []
    for a, b in pairs:
        for tos in (EF, BEST_EFFORT):
            ping = f"ping -Q {tos} -c 1 -W 1 {net.get(b).IP()}"
            said = net.get(a).cmd(f"{ping} || {ping} || {ping}")
            if " 1 received" not in said:
                missing.append((a, b, tos, said))
    return missing


@pytest.mark.parametrize("name", ["backbone", pytest.param("fat tree", marks=pytest.mark.long)])
def test_unseen_network_leads_everywhere_around_cut_trunks_and_after_all_daemons_are_killed(
    name: str,
) -> None:
    campus = backbone() if name == "backbone" else fat_tree(4)
    draws = random.Random(f"{SEEDS[0]} {name}")
    hosts = [host.name for host in campus.hosts]
    pairs = [(a, b) for a, b in (draws.sample(hosts, 2) for _ in range(25))]
    with LiveCampus(campus, enforcement=False) as net:
        assert net.openflow and len(net.plan.openflow) >= 20
        assert unanswered(net, pairs) == []
        cut = [ends for ends in spared(campus, draws, 4) if set(ends) <= net.plan.openflow.keys()]
        assert len(cut) >= 2
        for number, (a, b) in enumerate(cut):
            net.set_link(a, b, up=False, drain=bool(number % 2))
        time.sleep(1.0)
        assert unanswered(net, pairs) == [], cut
        events = len(net.openflow.read_events())
        for daemon in draws.sample(DAEMONS, 3):
            pid = net.openflow.pid(daemon)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        end_s = time.monotonic() + RESTARTED_WITHIN_S
        while len(net.openflow.restarts) < len(DAEMONS):
            assert time.monotonic() < end_s, net.openflow.restarts
            time.sleep(0.05)
        net.openflow.wait_programmed(after=events)
        assert unanswered(net, pairs) == [], (cut, net.openflow.restarts)
        for a, b in cut:
            net.set_link(a, b, up=True)
        time.sleep(1.0)
        assert unanswered(net, pairs) == []
