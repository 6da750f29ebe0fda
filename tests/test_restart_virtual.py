"""A coordinator that is killed and begins again from its journal: nothing is lost, no two copies run, what was agreed stands."""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from controller.core.coordinator import Coordinator
from controller.core.lifecycle.reconcile import RECOVERY_HEARTBEATS
from controller.core.model import facts as f
from controller.core.model.entities import Phase
from experiments.inputs.scenario import demo_scenario
from experiments.inputs.traces import generate
from experiments.storms.play import StormOutcome, play
from experiments.storms.script import Script, parse
from experiments.storms.world import StormWorld
from experiments.worlds.virtual import VirtualRun, VirtualWorld, simulate
from experiments.worlds.virtual.invariants import Invariants
from testbed.errors import InvariantBroken
from tests.world import PROTOCOL, World, a_running_job, job, small_campus

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


# ---------------------------------------------------------------- what goes on
def test_the_standby_stays_so_that_it_is_not_sent_everything_again(world: World) -> None:
    a_running_job(world, job("a", payload_bytes=8_000_000, params={"dirty_fraction": 0.01}), 8.0)
    before, known = world.jobs["a"].standby, len(world.of(f.TransferFinished))
    world.restart_coordinator(down_s=0.3)
    world.run(12.0)
    assert world.jobs["a"].standby == before
    [*_, last] = (sent for sent in world.of(f.TransferFinished)[known:] if sent.destination == before)
    assert 0 < last.bytes_sent < 8_000_000 == last.bytes_sent + last.bytes_deduplicated


# ---------------------------------------------------------------- what must not be
def test_a_job_of_an_agent_that_does_not_come_back_waits_for_a_whole_lease_after_the_restart(world: World) -> None:
    host = a_running_job(world, job("a"))
    world.pause(host, 30.0)  # it hears nothing, and its job goes on while its lease lasts
    world.restart_coordinator(down_s=0.1)
    back_s = world.now_s + 0.1
    world.run(back_s + PROTOCOL.lease_s + PROTOCOL.fence_margin_s - 0.001)
    assert world.of(f.JobStopped) == []
    world.run(back_s + PROTOCOL.lease_s + PROTOCOL.fence_margin_s + 0.001)
    assert [stopped.cause for stopped in world.of(f.JobStopped)] == ["agent_lost"]
    assert world.jobs["a"].attempt == 2


def test_nothing_is_decided_before_all_have_come_back_or_patience_is_over(world: World) -> None:
    host = a_running_job(world, job("a"))
    world.pause(host, 1.0)
    world.restart_coordinator(down_s=0.1)
    world.run(4.11)
    [restarted] = world.of(f.CoordinatorRestarted)
    assert restarted.hosts == sorted(world.machines)
    known = len(world.facts)
    world.submit(job("b", 10))
    recovery_s = RECOVERY_HEARTBEATS * PROTOCOL.heartbeat_s
    world.run(4.1 + min(recovery_s, 1.0) - 0.1)
    assert {type(fact) for _, fact in world.facts[known:]} <= {f.HostJoined, f.EgressMeasured}
    world.run(6.0)
    assert world.jobs["a"].attempt == 1
    assert world.jobs["b"].phase in (Phase.STARTING, Phase.RUNNING)


def test_other_decisions_for_the_same_events_are_an_error() -> None:
    class Otherwise(World):
        made = 0

        def new_coordinator(self) -> Coordinator:
            self.made += 1
            core = super().new_coordinator()
            core.cluster.queue.controller.hold(float(self.made))
            return core

    world = Otherwise(small_campus(2, 1))
    world.start()
    world.submit(job("a"))
    world.submit(job("b"))
    world.submit(job("c"))
    world.run(1.0)
    world.restart_coordinator()
    with pytest.raises(InvariantBroken, match="decides otherwise"):
        world.run(2.0)


# ---------------------------------------------------------------- at any moment
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_text_scenarios_keep_every_promise_when_the_coordinator_is_killed(path: Path) -> None:
    for killer in (Killer(1, 60, most=1), Killer(61, 9, most=4)):
        assert text_scenario(path, killer).failure is None
        assert killer.kills == killer.most


@pytest.mark.parametrize(("every", "first"), [(400, 3), (701, 150)])
def test_the_demo_keeps_every_promise_when_the_coordinator_is_killed(every: int, first: int) -> None:
    killer = Killer(every, first)
    summary = demo(killer, hosts=8, seconds=40.0).summary()
    assert killer.kills >= 3
    assert summary.invariants_broken == []
    assert summary.jobs.finished == summary.jobs.submitted > 10
    assert summary.jobs.lost == 0


# ---------------------------------------------------------------- killed after every so many events
# within a lease (2 s in text scenarios, 3 s in the demo) and beyond
DOWN_S = (0.0, 0.0, 0.004, 0.1, 1.0, 2.5, 8.0)


@dataclass
class Killer:
    """Kills the coordinator after every `every`-th event of the world, from the `first` one on, at most `most` times.

    Checks everything besides.
    """

    every: int
    first: int
    downs_s: tuple[float, ...] = DOWN_S
    most: int = 100
    kills: int = 0
    checks: Invariants = field(default_factory=Invariants)

    def __post_init__(self) -> None:
        self._rng = random.Random(f"{self.every} {self.first}")
        self._left = self.first

    def __call__(self, world: VirtualWorld) -> None:
        self.checks(world)
        self._left -= 1
        if world.jobs and world.over():
            return  # what is left of jobs then is looked at by somebody who hears it
        if self._left <= 0 and self.kills < self.most and not world.connections.refused:
            self._left, self.kills = self.every, self.kills + 1
            down_s = self._rng.choice(self.downs_s)
            if isinstance(world, StormWorld):
                world.restart(down_s)
            else:
                world.restart_coordinator(down_s=down_s)


def demo(killer: Killer, seed: int = 1, *, hosts: int = 12, seconds: float = 75.0, quiet: bool = True) -> VirtualRun:
    """The demo, until its jobs are over."""
    scenario = demo_scenario(hosts=hosts, seconds=seconds, seed=seed)
    return simulate(
        scenario,
        generate(scenario),
        # a quiet world keeps a journal from here on
        plan=lambda world: world.restart_coordinator(1e9),
        quiet=quiet,
        until_over=True,
        after_each=killer,
    )


def text_scenario(path: Path, killer: Killer) -> StormOutcome:
    """Play a scenario's faults; killing the coordinator changes where jobs are, and when."""

    class KilledWorld(StormWorld):
        def __init__(self, script: Script, *, tells_story: bool = False) -> None:
            super().__init__(script, tells_story=tells_story)
            self._after_each = killer

    return play(parse(path.read_text(), path.name), world_of=KilledWorld)
