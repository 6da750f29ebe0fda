"""A job that its user cancels ends as cancelled, whatever it is doing, and never computes again."""

from collections.abc import Callable
from typing import Any

import pytest

from controller.core.lifecycle.attempts import EVERYTHING
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts as f
from controller.core.model.entities import Phase
from testbed import messages as m
from tests.test_waiting import Silent, orders
from tests.world import World, a_running_job, a_world, job


def ended_as_cancelled(world: World, name: str, within_s: float = 20.0) -> None:
    """It is over, nothing of it is anywhere, and it stays so."""
    assert world.run_until(lambda: world.jobs[name].phase is Phase.CANCELLED, world.now_s + within_s)
    world.start()
    world.run(world.now_s + 40.0)
    assert world.jobs[name].phase is Phase.CANCELLED
    assert world.copies(name) == []
    assert len(world.of(f.JobCancelled)) == 1
    for machine in world.machines.values():
        assert [key for key in machine.store if key[0] == name] == []
        assert machine.core is None or name not in machine.core.running
    assert not [flow for flow in world.coordinator.cluster.flows.values() if flow.job == name]


def test_a_running_job_is_asked_to_end_and_its_gpu_is_free_when_its_process_is_gone(world: World) -> None:
    host = a_running_job(world, job("a"), 20.0)
    assert any(key[0] == "a" for machine in world.machines.values() for key in machine.store)
    world.cancel("a")
    assert world.jobs["a"].phase is Phase.CANCELLING
    assert "a" in world.coordinator.cluster.hosts[host].jobs
    ended_as_cancelled(world, "a")
    assert world.to(host, m.StopJob) == [m.StopJob("a", 1, job("a").grace_s)]
    assert [(fact.job, fact.host) for fact in world.of(f.CancelOrdered)] == [("a", host)]


def test_a_job_that_waits_is_cancelled_at_once_and_the_next_takes_its_place() -> None:
    world = a_world(2, 0)
    for name in ("a", "b", "c", "d", "e", "f"):
        world.submit(job(name, 60))
    waiting = world.coordinator.cluster.queue.waiting()
    assert len(waiting) >= 2
    world.cancel(waiting[0])
    assert world.jobs[waiting[0]].phase is Phase.CANCELLED
    ended_as_cancelled(world, waiting[0])
    assert world.run_until(world.over, 200.0)
    assert [fact.job for fact in world.of(f.JobFinished)].count(waiting[1]) == 1
    assert world.promises() == []


def test_a_job_whose_checkpoint_is_on_its_way_is_cancelled_at_once() -> None:
    silent = Silent()
    sender, to = silent.fetch()
    effects = silent.core.handle(ev.CancelAsked("a"), silent.now_s)
    assert silent.job.phase is Phase.CANCELLED
    assert not silent.core.cluster.hosts[to].jobs
    assert do.Tell(sender, m.CancelTransfers("a", to)) in effects
    assert {host for host, _ in orders(effects, m.Forget)} == silent.job.traces
    late = silent.say(to, m.CheckpointStored(m.StoredCheckpoint("a", 1_000_001, 5, 100_000, "digest")))
    assert orders(late, m.Forget) == [(to, m.Forget("a", EVERYTHING))]


HAPPENS: dict[str, Callable[[World, str], object]] = {
    "closed": lambda world, host: world.reclaim(host),
    "cut": lambda world, host: world.cut(host, 0.5, 0.5),
    "gone": lambda world, host: world.kill(host),
    "silent": lambda world, host: world.pause(host, 30.0),
    "coordinator restarts": lambda world, host: world.restart_coordinator(down_s=0.5),
    "both": lambda world, host: (world.kill(host), world.restart_coordinator(down_s=0.5)),
}


@pytest.mark.parametrize("happens", HAPPENS)
@pytest.mark.parametrize("first", [True, False])
def test_whatever_happens_to_its_host_or_its_coordinator_meanwhile_it_ends_as_cancelled(
    world: World, happens: str, first: bool
) -> None:
    host = a_running_job(world, job("a"), 12.0)
    if first:
        HAPPENS[happens](world, host)
    world.cancel("a")
    if not first:
        HAPPENS[happens](world, host)
    ended_as_cancelled(world, "a", 60.0)


def answer(world: World, name: str) -> Any:
    effects = world.coordinator.handle(ev.CancelAsked(name, 7), world.now_s)
    [said] = [effect for effect in effects if isinstance(effect, do.Answer)]
    assert said.operator == 7
    return said.message


def test_cancelled_twice_unknown_or_over_a_job_is_answered_clearly() -> None:
    world = a_world()
    world.checks = False
    host = a_running_job(world, job("a"))
    world.submit(job("short", 3))
    world.run(30.0)
    assert answer(world, "nothing") == m.Rejected("nothing", "no job of this name was submitted")
    assert answer(world, "short") == m.Rejected("short", "it is over: finished")
    assert answer(world, "a") == m.Cancelled("a", host)
    assert answer(world, "a") == m.Cancelled("a", host, before=True)
    world.coordinator.handle(ev.AgentSaid(host, m.JobEnded("a", 1, "stopped", 5)), world.now_s)
    assert answer(world, "a") == m.Cancelled("a", "", before=True)
    told = {ended.job: ended.phase for ended in world.coordinator.status(world.now_s).ended}
    assert told == {"a": "cancelled", "short": "finished"}


def test_the_start_of_a_cancelled_job_that_comes_late_is_undone() -> None:
    """An agent that runs what the coordinator has called off is told so with its next heartbeat."""
    world = a_world()
    host = a_running_job(world, job("a"))
    world.checks = False
    world.cancel("a")
    world.run(world.now_s + 5.0)
    claims = m.Heartbeat(9, [m.JobClaim("a", 1, 7)])
    effects = world.coordinator.handle(ev.AgentSaid(host, claims), world.now_s)
    assert do.Tell(host, m.StopJob("a", 1)) in effects
