"""A fat tree of twenty switches, live: it leads everywhere while trunks are cut, and after its daemons are killed.

FAT_TREES="21 22" pytest tests/test_fat_tree_live.py (other seeds are other pairs and other cuts)
"""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from testbed.emulation.campus import LiveCampus
from testbed.emulation.kernel.openvswitch import missing_programs
from tests.live_campus import live
from tests.test_dying_trunks_live import DAEMONS
from topologies.paths import Routes
from topologies.presets import fat_tree
from topologies.spec import Campus

pytestmark = [
    *live,
    pytest.mark.skipif(bool(missing_programs()), reason=f"Open vSwitch lacks {missing_programs()}"),
]
SEEDS = os.environ.get("FAT_TREES", "1").split()
RESTARTED_WITHIN_S = 10.0  # each is started again after a second, if it has run for as long
EF, BEST_EFFORT = 184, 0  # as ping's -Q wants them


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


@pytest.mark.parametrize("seed", SEEDS)
def test_it_leads_everywhere_around_cut_trunks_and_after_all_daemons_are_killed(seed: str) -> None:
    campus, draws = fat_tree(4), random.Random(f"{seed} fat tree")
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
