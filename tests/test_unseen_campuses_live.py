"""Networks of switches that nobody has tried by hand: others' maps and random meshes, live; trunks are cut, daemons killed.

UNSEEN="21 22 23" pytest tests/test_unseen_campuses_live.py (other seeds are other campuses)
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from controller.core.model import facts as f
from controller.persistence.journal import read_facts
from experiments.inputs.scenario import files
from experiments.inputs.scenario.parts import LinkEvent
from testbed.emulation.campus import LiveCampus
from testbed.emulation.kernel.openvswitch import missing_programs
from tests.live_campus import live, running
from tests.test_dying_trunks_live import DAEMONS, EXAMPLE, check_the_coordinators_picture
from topologies import graphml
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


def backbone(folder: Path) -> Campus:
    """A country's network as the Topology Zoo has them: eight cities of four or five places, half of them rings; a ladder joins
    them, with a double link, a loop, places without a name, and places that hang on a single line."""
    edges, nodes = [], 0
    cities = []
    for size in (5, 4, 5, 4, 4, 5, 4, 5):
        city = list(range(nodes, nodes + size))
        nodes += size
        cities.append(city)
        edges += [(a, b, 2.5e9) for a, b in pairwise(city)]
        if size == 5:
            edges.append((city[-1], city[0], 1e9))
    edges += [(a[0], b[0], 1e10) for a, b in pairwise(cities)]
    edges += [(a[1], b[1], 1e10) for a, b in zip(cities[::2], cities[2::2], strict=False)]
    edges += [(cities[0][0], cities[-1][0], 4e10), (cities[0][0], cities[-1][0], 4e10), (3, 3, 1e9)]
    lines = ["<graphml xmlns='http://graphml.graphdrawing.org/xmlns'>"]
    lines.append("<key attr.name='LinkSpeedRaw' attr.type='double' for='edge' id='rate'/>")
    lines.append(
        "<key attr.name='label' attr.type='string' for='node' id='label'/><graph edgedefault='undirected'>"
    )
    names = [f"<data key='label'>Place {n}</data>" if n % 3 else "" for n in range(nodes)]
    lines += [f"<node id='{n}'>{name}</node>" for n, name in enumerate(names)]
    lines += [
        f"<edge source='{a}' target='{b}'><data key='rate'>{rate}</data></edge>" for a, b, rate in edges
    ]
    path = folder / "Backbone.graphml"
    path.write_text("\n".join([*lines, "</graph></graphml>"]))
    return graphml.load(path)


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
    name: str, tmp_path: Path
) -> None:
    campus = backbone(tmp_path) if name == "backbone" else fat_tree(4)
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


def mesh(draws: random.Random) -> str:
    """A campus of four to seven switches, each on a random one before it, and up to as many trunks more; its hosts hang on random
    ones."""
    count = draws.randint(4, 7)
    above = {n: [draws.randint(1, n - 1)] for n in range(2, count + 1)}
    for _ in range(count):
        a, b = sorted(draws.sample(range(1, count + 1), 2))
        if a not in above[b]:
            above[b].append(a)
    rates = ("1 Gbit/s", "2.5 Gbit/s", "10 Gbit/s")
    lines = ['name = "mesh"', 'buildings = ["library", "physics"]', 'fabric = "openvswitch"']
    lines += ["[gpu_models.rtx4090]", 'memory = "24 GB"', "compute_capability = 8.9"]
    lines += ["[[switches]]", 'name = "c1"', 'tier = "core"']
    for switch, uplinks in above.items():
        links = ", ".join(f'"c{n}"' for n in uplinks)
        lines += ["[[switches]]", f'name = "c{switch}"', 'tier = "core"', f"link_to = [{links}]"]
        lines += [f'rate = "{draws.choice(rates)}"']
    for number in range(1, 4):
        for prefix, building in (("l", "library"), ("p", "physics")):
            lines += [
                "[[hosts]]",
                f'name = "{prefix}{number}"',
                f'building = "{building}"',
                'gpu_model = "rtx4090"',
            ]
            lines += [f'link_to = "c{draws.randint(1, count)}"', 'rate = "1 Gbit/s"']
    lines += ["[[hosts]]", 'name = "coord"', 'role = "coordinator"', 'building = "library"']
    return "\n".join([*lines, f'link_to = "c{draws.randint(1, count)}"', 'rate = "2.5 Gbit/s"'])


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_migrations_on_a_random_mesh_outlive_cut_trunks_and_killed_daemons(seed: str, tmp_path: Path) -> None:
    draws = random.Random(f"{seed} mesh")
    (tmp_path / "mesh.toml").write_text(mesh(draws))
    text = EXAMPLE.read_text().replace("example:twocores", str(tmp_path / "mesh.toml"))
    (tmp_path / "s.toml").write_text(text.partition("[[events]]")[0] + "[scale]\nbytes = 0.04\n")
    scenario = files.load(tmp_path / "s.toml")
    events = []
    for trunk in spared(scenario.campus, draws, 3):
        at_s = draws.uniform(5.5, 12.0)
        events.append(LinkEvent(at_s, trunk, up=False, drain_s=draws.choice([None, 1.0])))
        events.append(LinkEvent(at_s + draws.uniform(0.3, 3.0), trunk, up=True))
    scenario = replace(scenario, events=tuple(sorted(events, key=lambda event: event.at_s)))
    (tmp_path / "s.toml").write_text(files.dumps(scenario))
    kills = sorted((draws.uniform(6.5, 15.0), draws.choice(DAEMONS)) for _ in range(3))
    with running(tmp_path / "out", "run", str(tmp_path / "s.toml")) as run:
        run.wait_until(lambda: run.pids("controller") and (run.out / "journal.sqlite").exists())
        begin_s = time.monotonic()
        for at_s, name in kills:
            time.sleep(max(0.0, begin_s + at_s - time.monotonic()))
            if pids := run.pids(name):
                os.kill(pids[-1], signal.SIGKILL)
        status = run.finish(90.0)
        story = run.finish_text() + f"\n{kills}\n{scenario.events}\n{mesh(random.Random(f'{seed} mesh'))}"
    assert status in (0, 3), story  # 3: the machine was too busy to be believed
    summary = run.summary()
    assert not summary["invariants_broken"] and summary["ended"] == "completed", story
    facts = [fact for _, fact in read_facts(run.out / "journal.sqlite")]
    assert any(isinstance(fact, f.MigrationAdmitted) for fact in facts), story
    check_the_coordinators_picture(run.out, scenario, story)
