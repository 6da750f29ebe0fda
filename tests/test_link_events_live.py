"""Links that change during a live run: the kernel's, the coordinator's plans, and its journal."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from controller.core.coordinator import Coordinator
from controller.core.model import facts as f
from controller.persistence.journal import Journal, read_facts
from controller.persistence.recovery import recall
from experiments.inputs.scenario.files import dumps, loads
from experiments.inputs.scenario.parts import LinkEvent
from testbed.emulation.kernel.openvswitch import missing_programs
from tests.live_campus import needs_root, running
from topologies.spec import DirectedLink

UP, DOWN = DirectedLink("library", "core1"), DirectedLink("core1", "library")

# two buildings behind a switch each; all that one sends the other crosses core1-core2, on which no host hangs but the coordinator
BETWEEN_SWITCHES = """
name = "between"
seed = 1
duration = "14 s"

[campus]
name = "line"
buildings = ["library", "physics"]
fabric = "openvswitch"

[campus.gpu_models.rtx4090]
memory = "24 GB"
compute_capability = 8.9

[[campus.switches]]
name = "core1"
tier = "core"

[[campus.switches]]
name = "core2"
tier = "core"
link_to = "core1"
rate = "1 Gbit/s"

[[campus.switches]]
name = "library"
tier = "distribution"
building = "library"
link_to = "core1"
rate = "10 Gbit/s"

[[campus.switches]]
name = "physics"
tier = "distribution"
building = "physics"
link_to = "core2"
rate = "10 Gbit/s"

[[campus.hosts]]
name = "l1"
building = "library"
gpu_model = "rtx4090"
link_to = "library"
rate = "10 Gbit/s"

[[campus.hosts]]
name = "p1"
building = "physics"
gpu_model = "rtx4090"
link_to = "physics"
rate = "10 Gbit/s"

[[campus.hosts]]
name = "coord"
role = "coordinator"
building = "library"
link_to = "core1"
rate = "2.5 Gbit/s"

[protocol]
restart = "0.5 s"
control_period = "1 s"
lease = "6 s"

[[jobs]]
at = "1 s"
steps = 10000
step = "100 ms"
payload = "250 MB"

[owners]
hazard = "0 /h"
script = [
    { at = "0 s", host = "p1" },
    { at = "3 s", host = "p1", kind = "return" },
    { at = "6 s", host = "l1", notice = "8 s" },
]

[scale]
bytes = 0.04
"""


@pytest.mark.kernel
@pytest.mark.campus
@needs_root
@pytest.mark.skipif(bool(missing_programs()), reason=f"Open vSwitch lacks {missing_programs()}")
def test_live_events_of_links_reach_the_kernel_and_the_coordinator(tmp_path: Path) -> None:
    """A trunk is cut and l1's link changes; the journal, played again, has the links as they were at the end."""
    scenario = loads(BETWEEN_SWITCHES)
    access = scenario.campus.access_link("l1")
    end, rate = (access.a, access.b), access.rate_bytes_per_s
    events = (
        LinkEvent(1.0, UP, up=False),
        LinkEvent(1.6, UP, up=True),
        LinkEvent(2.2, end, rate_bytes_per_s=rate / 2.0, delay_s=0.002, loss=0.001),
        LinkEvent(3.4, end, rate_bytes_per_s=rate, delay_s=0.0, loss=0.0),
    )
    scenario = replace(scenario, events=events)
    (tmp_path / "s.toml").write_text(dumps(scenario))
    played = scenario.played().campus
    with running(tmp_path / "out", "run", str(tmp_path / "s.toml")) as run:
        status = run.finish(60.0)
        story = run.finish_text()
    assert status in (0, 3), story  # 3: the machine was too busy to be believed
    facts = [fact for _, fact in read_facts(run.out / "journal.sqlite")]
    assert any(isinstance(fact, f.MigrationFinished) and fact.in_time for fact in facts), story
    summary = run.summary()
    assert not summary["invariants_broken"] and summary["ended"] == "completed", story
    assert summary["fidelity"]["figures"]["delay_line_frames"] > 0
    changed = [fact for fact in facts if isinstance(fact, f.LinkChanged)]
    cut = [(fact.source, fact.target, fact.rate_bytes_per_s > 0.0) for fact in changed[:4]]
    assert sorted(cut[:2]) == [(*DOWN, False), (*UP, False)]
    assert sorted(cut[2:]) == [(*DOWN, True), (*UP, True)]
    full = round(played.access_link("l1").rate_bytes_per_s)
    assert [fact.rate_bytes_per_s for fact in changed[4:]] == [round(full / 2)] * 2 + [full] * 2
    with closing(Journal(run.out / "journal.sqlite")) as journal:
        draw = random.Random(f"{scenario.seed} placement").random
        secret, given = bytes.fromhex(journal.origin()["secret"]), scenario.played()
        core = Coordinator(played, given.protocol, given.queue, draw, secret)
        assert recall(journal, core).core.cluster.capacity.bandwidth.capacity[DirectedLink(*end)] == full
