"""Jobs that ask for several GPUs of one host: never more than it has, one process on all of them, GPU time counted for each."""

import os
import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from controller.core.model import facts as f
from controller.core.queueing.controllers.controller import Controller
from controller.core.queueing.queue import Dispatch, Queued, SpotJob, SpotQueue, Standing
from controller.core.queueing.replay import Rule
from experiments.inputs.scenario import loads
from experiments.inputs.traces import generate
from experiments.results.lost_time import LostPart, balances
from experiments.storms import play
from experiments.storms.generate import generate as storm
from experiments.storms.setup import campus_line
from experiments.worlds.virtual import simulate
from testbed import messages as m
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.core.agent import AgentCore
from testbed.messages import JobSpec
from testbed.workloads import runner
from tests.world import World, a_running_job, small_campus
from topologies.spec import Role

WIDE = JobSpec("wide", 200, 0.1, 2_000_000, gpus=2)


# ---------------------------------------------------------------- the queue
def waiting(*jobs: SpotJob, behind: dict[int, int], ttl_s: float = 0.0) -> SpotQueue:
    """A queue in which these jobs wait; `behind`: offer -> GPUs that are free behind it."""
    queue = SpotQueue(Controller(Rule(8.0)), ttl_s, gpus_behind=lambda offer: behind[offer.offer_id])
    for number, job in enumerate(jobs):
        assert queue.submit(job, float(number), 0.0) == Queued(number)
    return queue


def test_a_standing_offer_is_taken_once_enough_gpus_are_free_behind_it() -> None:
    behind = {1: 1}
    queue = waiting(SpotJob("wide", gpus=2), behind=behind, ttl_s=100.0)
    assert isinstance(queue.offer(1, 2.0), Standing)
    assert queue.serve(3.0) is None
    behind[1] = 2
    assert queue.serve(4.0) == Dispatch("wide", 1, 4.0, first=True)


# ---------------------------------------------------------------- an agent
def agent(gpus: int) -> AgentCore:
    core = AgentCore("h1", 1, 7200, gpus=gpus)
    core.handle(ev.Connected(), 10.0)
    core.handle(ev.Received(m.Welcome(30.0, 1.0)), 10.0)
    return core


def start(core: AgentCore, name: str, gpus: int, attempt: int = 1) -> tuple[int, ...] | str:
    """The slots in which it starts, or why it does not."""
    order = m.StartJob(msgspec.structs.replace(WIDE, name=name, gpus=gpus), attempt, None)
    effects = core.handle(ev.Received(order), 11.0)
    for effect in effects:
        if isinstance(effect, do.StartWorkload):
            return effect.slots
        if isinstance(effect, do.Send) and isinstance(effect.message, m.JobEnded):
            return effect.message.reason
    raise AssertionError(effects)


def test_each_job_has_gpus_of_its_own_until_its_process_is_gone() -> None:
    core = agent(4)
    assert start(core, "a", 1) == (0,)
    assert start(core, "b", 2) == (1, 2)
    assert start(core, "c", 2) == "1 of 4 GPUs are free, and it needs 2"
    core.handle(ev.WorkloadEnded(m.JobEnded("a", 1, "failed", 0)), 12.0)
    assert start(core, "c", 2) == (0, 3)
    assert start(core, "b", 2, attempt=2) == (1, 2)  # in place of its first attempt


def test_a_job_that_its_last_snapshot_has_stopped_has_no_gpus_any_more() -> None:
    core = agent(2)
    assert start(core, "wide", 2) == (0, 1)
    core.handle(ev.WorkloadStarted("wide", 1, 0, "digest"), 11.5)
    there = m.Endpoint("h2", "10.0.0.2", 7200)
    core.handle(ev.Received(m.Migrate("wide", 1, there, 1e6, 0.0)), 12.0)
    last = m.StoredCheckpoint("wide", m.SEQUENCES_PER_ATTEMPT + 1, 7, 1_000, "digest")
    core.handle(ev.SnapshotDone(1, last, final=True), 12.5)
    assert start(core, "next", 2) == (0, 1)


def test_a_process_is_told_its_gpus_and_cuda_only_those_that_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(Path, "exists", lambda path: path.name in ("nvidia0", "nvidia1"))
    runner.take_gpus((1, 2))
    assert (os.environ[runner.GPUS], runner.CUDA_DEVICES in os.environ) == ("1,2", False)
    runner.take_gpus((0, 1))
    assert os.environ[runner.GPUS] == os.environ[runner.CUDA_DEVICES] == "0,1"


# ---------------------------------------------------------------- virtual campuses
def test_a_job_of_two_gpus_moves_to_a_host_with_two_free_ones_and_resumes_on_one() -> None:
    world = World(small_campus(8, 2))
    world.start()
    first = a_running_job(world, WIDE)
    assert world.coordinator.cluster.hosts[first].free_gpus == 0
    world.reclaim(first, 10.0)
    assert world.run_until(lambda: world.jobs["wide"].attempt == 2, 20.0)
    [moved] = world.of(f.MigrationFinished)
    assert moved.in_time
    second = world.jobs["wide"].host or ""
    world.run(world.now_s + 3.0)
    world.reclaim(second)
    assert world.run_until(lambda: bool(world.of(f.JobFinished)), 90.0)
    hosts = [fact.host for fact in world.of(f.JobDispatched)]
    assert {world.env.campus.host_by_name[host].gpus for host in hosts} == {2}


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(8, 24))])
def test_storms_of_jobs_with_several_gpus_keep_every_promise(seed: int) -> None:
    script, rng = storm(seed), random.Random(f"gpus {seed}")
    campus = campus_line(script).campus()
    roles = (list(campus.hosts_of(Role.VOLUNTEER)), list(campus.hosts_of(Role.ON_DEMAND)))
    most = min(max(host.gpus for host in hosts) for hosts in roles if hosts)
    lines = [
        replace(line, words=(*line.words, f"gpus={rng.randint(1, most)}")) if line.verb == "submit" else line
        for line in script.lines
    ]
    failure = play(script.with_lines(lines)).failure
    assert failure is None, "\n".join([failure.subject, failure.rule, *failure.story])


SCENARIO = """
name = "wide"
campus = "example:lab"
duration = "20 min"
[[jobs]]
name = "wide"
gpus = GPUS
steps = 100
step = "2 s"
payload = "100 MB"
[owners]
hazard = "0 /h"
"""


def test_gpu_time_and_cost_are_counted_for_each_gpu() -> None:
    for gpus in (1, 2):
        scenario = loads(SCENARIO.replace("GPUS", str(gpus)))
        run = simulate(scenario, generate(scenario))
        [balance] = balances(run.facts, run.context).values()
        assert run.summary().invariants_broken == []
        assert balance.useful_s == pytest.approx(200.0 * gpus)
        lost_s = balance.begun_s - balance.useful_s - balance.first_start_s
        assert balance.lost_s(*LostPart) == pytest.approx(lost_s)
        assert lost_s > 0.0
        [dispatched] = [fact for _, fact in run.facts if isinstance(fact, f.JobDispatched)]
        assert dispatched.cost == gpus
