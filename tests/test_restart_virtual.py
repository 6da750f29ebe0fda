"""A coordinator that is killed and begins again from its journal: nothing is lost, no two copies run, what was agreed stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.core.coordinator import Coordinator
from controller.core.lifecycle.resync import PATIENCE
from controller.core.model import events as ev
from controller.core.model import facts as f
from controller.core.model.entities import Phase
from experiments.worlds.virtual.journal import MemoryJournal
from testbed import messages as m
from testbed.errors import InvariantBroken
from tests.cores_world import SETTINGS, CoresWorld, a_running_job, small_campus
from tests.restart_sweep import Killer, demo, text_scenario

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


def job(name: str, steps: int = 1000, payload_bytes: int = 2_000_000) -> m.JobSpec:
    return m.JobSpec(name, steps, 0.1, payload_bytes)


@pytest.fixture
def world() -> Iterator[CoresWorld]:
    made = CoresWorld(small_campus(4, 1), replace(SETTINGS, level_start=3.0))
    made.start()
    made.run(0.5)
    yield made
    assert made.promises() == []


# ---------------------------------------------------------------- what goes on


def test_a_job_runs_on_through_a_restart(world: CoresWorld) -> None:
    a_running_job(world, job("a"))
    dead = world.coordinator
    world.restart_coordinator(down_s=0.3)
    world.run(6.0)
    assert world.coordinator is not dead
    assert (world.jobs["a"].phase, world.jobs["a"].attempt) == (Phase.RUNNING, 1)
    assert len(world.of(f.CoordinatorRestarted)) == 1
    assert world.of(f.JobStopped) == []


def test_the_standby_stays_so_that_it_is_not_sent_everything_again(world: CoresWorld) -> None:
    a_running_job(world, job("a", payload_bytes=8_000_000), 8.0)
    before, sent = world.jobs["a"].standby, world.jobs["a"].sent_bytes
    assert sent is not None
    world.restart_coordinator(down_s=0.3)
    world.run(9.5)
    assert world.jobs["a"].standby == before
    assert world.jobs["a"].sent_bytes is not None


def test_a_move_goes_on_while_the_coordinator_is_dead_and_is_in_time(world: CoresWorld) -> None:
    source = a_running_job(world, job("a", payload_bytes=8_000_000))
    world.reclaim(source, 8.0)
    world.run(4.5)
    move = world.jobs["a"].move
    assert move is not None
    world.restart_coordinator(down_s=1.0)
    world.run(12.0)
    [moved] = world.of(f.MigrationFinished)
    assert (moved.in_time, moved.destination) == (True, move.destination)
    assert world.of(f.WorkLost) == []
    assert len(world.of(f.MigrationAdmitted)) == 1


@pytest.mark.parametrize("down_s", [0.4, 0.8, 1.2, 1.4])
def test_a_move_whose_end_nobody_heard_is_a_move(world: CoresWorld, down_s: float) -> None:
    source = a_running_job(world, job("a", payload_bytes=8_000_000))
    world.reclaim(source, 6.0)
    world.run_until(lambda: any(fact.final for fact in world.of(f.CheckpointTaken)), 12.0)
    world.restart_coordinator(down_s=down_s)
    world.run(15.0)
    assert world.jobs["a"].phase is Phase.RUNNING
    assert world.jobs["a"].attempt == 2
    assert world.of(f.WorkLost) == []


def test_a_recovery_that_was_being_sent_is_sent_again(world: CoresWorld) -> None:
    host = a_running_job(world, job("a", payload_bytes=8_000_000), 15.0)
    [holder] = {fact.holder for fact in world.of(f.CheckpointCompleted)}
    world.reclaim(holder, 20.0)  # it can still send, but not take the job
    world.run(15.3)
    world.reclaim(host)
    assert world.run_until(lambda: world.jobs["a"].phase is Phase.FETCHING, 17.0)
    world.restart_coordinator(down_s=0.2)
    world.run(25.0)
    assert (world.jobs["a"].phase, world.jobs["a"].attempt) == (Phase.RUNNING, 2)


# ---------------------------------------------------------------- what must not be


def test_a_job_of_an_agent_that_does_not_come_back_waits_for_a_whole_lease_after_the_restart(
    world: CoresWorld,
) -> None:
    host = a_running_job(world, job("a"))
    world.pause(host, 30.0)  # it hears nothing, and its job goes on while its lease lasts
    world.restart_coordinator(down_s=0.1)
    back_s = world.now_s + 0.1
    world.run(back_s + SETTINGS.lease_s + SETTINGS.fence_margin_s - 0.001)
    assert world.of(f.JobStopped) == []
    world.run(back_s + SETTINGS.lease_s + SETTINGS.fence_margin_s + 0.001)
    assert [stopped.cause for stopped in world.of(f.JobStopped)] == ["agent_lost"]
    assert world.jobs["a"].attempt == 2


def test_an_agent_without_a_coordinator_stops_its_job_when_its_lease_ends(world: CoresWorld) -> None:
    a_running_job(world, job("a"))
    world.restart_coordinator(down_s=30.0)
    world.run(4.0 + SETTINGS.lease_s)
    assert world.copies("a") == []
    world.run(45.0)
    assert (world.jobs["a"].phase, world.jobs["a"].attempt) == (Phase.RUNNING, 2)


def test_nothing_is_decided_before_all_have_come_back_or_patience_is_over(world: CoresWorld) -> None:
    host = a_running_job(world, job("a"))
    world.pause(host, 1.0)
    world.restart_coordinator(down_s=0.1)
    world.run(4.11)
    [restarted] = world.of(f.CoordinatorRestarted)
    assert restarted.hosts == sorted(world.machines)
    known = len(world.facts)
    world.submit(job("b", 10))
    patience_s = PATIENCE * SETTINGS.heartbeat_s
    world.run(4.1 + min(patience_s, 1.0) - 0.1)
    assert {type(fact) for _, fact in world.facts[known:]} <= {f.HostJoined, f.EgressMeasured}
    world.run(6.0)
    assert world.jobs["a"].attempt == 1
    assert world.jobs["b"].phase in (Phase.STARTING, Phase.RUNNING)


def test_an_owner_who_closed_his_host_meanwhile_is_believed(world: CoresWorld) -> None:
    host = a_running_job(world, job("a"))
    world.restart_coordinator(down_s=0.5)
    world.run(4.1)
    world.reclaim(host)
    world.run(8.0)
    assert world.jobs["a"].host != host
    assert world.jobs["a"].phase is Phase.RUNNING


def test_jobs_submitted_before_a_second_death_are_not_forgotten(world: CoresWorld) -> None:
    host = a_running_job(world, job("a"))
    world.pause(host, 10.0)
    world.restart_coordinator(down_s=0.1)
    world.run(world.now_s + 0.6)
    world.submit(job("b", 10))  # it waits for the host that stands still
    world.restart_coordinator(down_s=0.1)
    world.run(20.0)
    assert world.jobs["b"].phase is Phase.FINISHED


def test_other_decisions_for_the_same_events_are_an_error() -> None:
    class Otherwise(CoresWorld):
        made = 0

        def new_coordinator(self) -> Coordinator:
            self.made += 1
            core = super().new_coordinator()
            core.cluster.queue.controller.level = float(self.made)  # type: ignore[misc]
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


def test_a_quiet_world_that_has_begun_has_no_journal_to_begin_again_from() -> None:
    world = CoresWorld(small_campus(2, 1), quiet=True)
    world.start()
    world.run(1.0)
    with pytest.raises(ValueError, match="before its first event"):
        world.restart_coordinator()


def test_an_empty_memory_makes_a_fresh_coordinator() -> None:
    core = Coordinator(small_campus(2, 1), SETTINGS, lambda: 0.0)
    assert MemoryJournal().recall(core, []) is core
    assert core.handle(ev.Restarted(0.0), 1.0) != []


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


# ---------------------------------------------------------------- an agent's Hello, restart or not


def test_a_job_that_a_hello_itself_brings_to_its_host_is_not_taken_for_dead() -> None:
    world = CoresWorld(small_campus(1, 0, buildings=1), replace(SETTINGS, level_start=5.0))
    world.start()
    world.run(0.5)
    world.submit(job("a", 30))
    world.submit(job("b", 30))
    world.run(3.0)
    [host] = world.machines
    assert (world.jobs["a"].phase, world.jobs["b"].phase) == (Phase.RUNNING, Phase.WAITING)
    world.cut(host, 1.1, 1.1)  # its last word of the first job is lost
    world.run(40.0)
    assert [world.jobs[name].phase for name in "ab"] == [Phase.FINISHED, Phase.FINISHED]
    assert [world.jobs[name].attempt for name in "ab"] == [1, 1]
