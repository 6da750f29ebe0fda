"""Networks of switches, live, while trunks are cut at random and their daemons are killed: other seeds are other runs.

LIVE_STORMS="11 12 13" pytest tests/test_dying_trunks_live.py
"""

import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from controller.core.coordinator import Coordinator
from controller.core.model import facts as f
from controller.persistence.journal import Journal, read_facts
from controller.persistence.recovery import JournalReplay
from experiments.inputs.scenario import Scenario, files
from experiments.inputs.scenario.parts import LinkEvent
from testbed.emulation.campus import LiveCampus
from testbed.emulation.kernel.openvswitch import missing_programs
from tests.live_campus import live, running
from tests.patience import wait_until
from topologies.paths import Routes
from topologies.presets import fat_tree
from topologies.spec import Campus, DirectedLink

pytestmark = [*live, pytest.mark.skipif(bool(missing_programs()), reason=f"Open vSwitch lacks {missing_programs()}")]
SEEDS = os.environ.get("LIVE_STORMS", "1").split()
EXAMPLE = Path(__file__).parents[1] / "docs/examples/evacuation.toml"
DAEMONS = ("ovs-vswitchd", "ovsdb-server", "controller")
TRUNKS = [(building, core) for building in ("library", "physics") for core in ("core1", "core2")]
# the evacuation of the docs, sooner: less to carry, under a shorter notice
SOONER = {
    'duration = "21 s"': 'duration = "11 s"',
    'payload = "700 MB"': 'payload = "350 MB"',
    'at = "3 s"': 'at = "0.5 s"',
    'at = "6 s"': 'at = "3 s"',
    'notice = "14 s"': 'notice = "8 s"',
}
FIRST_S, LAST_S = (2.7, 8.5)  # of cuts and kills: notice is given at 3 s, and what is under way may end after them


def cuts(draws: random.Random) -> tuple[LinkEvent, ...]:
    """Each trunk is cut up to twice, for up to 1.2 s; every other time it is drained first."""
    events = []
    for trunk in TRUNKS:
        at_s = FIRST_S
        for _ in range(draws.randint(0, 2)):
            at_s += draws.uniform(0.5, 2.5)
            until_s = at_s + draws.uniform(0.2, 1.2)
            if until_s > LAST_S:
                break
            events.append(LinkEvent(at_s, trunk, up=False, drain_s=draws.choice([None, 1.0])))
            events.append(LinkEvent(until_s, trunk, up=True))
            at_s = until_s
    return tuple(sorted(events, key=lambda event: event.at_s))


@pytest.mark.parametrize("seed", SEEDS)
def test_run_outlives_cut_trunks_and_killed_daemons_and_keeps_every_promise(seed: str, tmp_path: Path) -> None:
    draws = random.Random(f"{seed} live storm")
    text = EXAMPLE.read_text()
    for printed, sooner in SOONER.items():
        assert printed in text
        text = text.replace(printed, sooner)
    scenario = files.loads(text)
    access = scenario.campus.access_link("l1")
    end, rate = (access.a, access.b), access.rate_bytes_per_s
    slower = (
        LinkEvent(0.5, end, rate_bytes_per_s=rate / 2.0, delay_s=0.002, loss=0.001),
        LinkEvent(1.8, end, rate_bytes_per_s=rate, delay_s=0.0, loss=0.0),
    )
    scenario = replace(scenario, events=(*slower, *cuts(draws)))
    (tmp_path / "s.toml").write_text(files.dumps(scenario))
    kills = sorted((draws.uniform(FIRST_S, LAST_S), draws.choice(DAEMONS)) for _ in range(4))
    killed = []
    with running(tmp_path / "out", "run", str(tmp_path / "s.toml")) as run:
        run.wait_until(lambda: run.pids("controller") and (run.out / "journal.sqlite").exists())
        begin_s = time.monotonic()
        for at_s, name in kills:
            time.sleep(max(0.0, begin_s + at_s - time.monotonic()))
            if pids := run.pids(name):  # else it was killed a moment ago, and is being started again
                os.kill(pids[-1], signal.SIGKILL)
                killed.append((at_s, name))
        status = run.finish(90.0)
        story = run.finish_text() + f"\n{killed}\n{scenario.events}"
    assert killed, story
    assert status in (0, 3), story  # 3: the machine was too busy to be believed
    summary = run.summary()
    assert not summary["invariants_broken"] and summary["ended"] == "completed", story
    facts = [fact for _, fact in read_facts(run.out / "journal.sqlite")]
    assert status == 3 or any(isinstance(fact, f.MigrationAdmitted) for fact in facts), story
    changed = [fact for fact in facts if isinstance(fact, f.LinkChanged)]
    full = round(scenario.played().campus.access_link("l1").rate_bytes_per_s)
    of_the_host = [fact.rate_bytes_per_s for fact in changed if "l1" in (fact.source, fact.target)]
    assert of_the_host == [round(full / 2)] * 2 + [full] * 2, story
    assert summary["fidelity"]["figures"]["delay_line_frames"] > 0
    cut = {(fact.source, fact.target) for fact in changed[4:] if fact.rate_bytes_per_s == 0.0}
    planned = {event.between for event in scenario.events if event.up is False}
    assert {ends[::-1] for ends in cut} == cut and bool(cut) == bool(planned), story
    assert cut <= planned | {ends[::-1] for ends in planned}, story
    check_the_coordinators_picture(run.out, scenario, story)


def check_the_coordinators_picture(out: Path, scenario: Scenario, story: str) -> None:
    """By its journal: in the end it has the campus as it was built, every trunk alive."""
    journal = Journal(out / "journal.sqlite")
    try:
        played = scenario.played()
        draw = random.Random(f"{played.seed} placement").random
        core = Coordinator(played.campus, played.protocol, played.queue, draw)
        replay = JournalReplay(journal, core)
        replay.advance()
        cluster = replay.core.cluster
        assert cluster.routes.dead == frozenset() and not cluster.capacity.draining, story
        assert cluster.installation.answers, story
        access = played.campus.access_link("l1")
        capacity = cluster.capacity.wire[DirectedLink(access.a, access.b)]
        assert capacity == round(access.rate_bytes_per_s), story
        routes = Routes(played.campus)
        for a, b in (("l1", "p1"), ("p2", "l3")):
            assert cluster.routes.route(a, b) == routes.route(a, b), story
    finally:
        journal.close()


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
    asked = []
    for a, b in pairs:
        for tos in (EF, BEST_EFFORT):
            ping = f"ping -Q {tos} -c 1 -W 1 {net.get(b).IP()}"
            asked.append((a, b, tos, net.get(a).popen(["sh", "-c", f"{ping} || {ping} || {ping}"], text=True)))
    answers = [(a, b, tos, process.communicate()[0]) for a, b, tos, process in asked]
    return [answer for answer in answers if " 1 received" not in answer[-1]]


@pytest.mark.long
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
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(net.openflow.restarts) == len(DAEMONS), lambda: net.openflow.restarts)
        net.openflow.wait_programmed(after=events)
        assert unanswered(net, pairs) == [], (cut, net.openflow.restarts)
        for a, b in cut:
            net.set_link(a, b, up=True)
        time.sleep(1.0)
        assert unanswered(net, pairs) == []
