"""The benchmark of the coordinator's tick: its world is a real one, and its figures are what they say."""

import json
import math
from pathlib import Path

import pytest

from controller.core.coordinator import TOGETHER_S, Coordinator
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts as f
from controller.core.model.entities import Phase
from controller.core.parameters import Queue
from experiments.benchmarks import decisions
from experiments.benchmarks.decisions import AtWork
from experiments.benchmarks.decisions_world import HISTORY_S, PROTOCOL, coordinator_at_work
from experiments.benchmarks.frame import Run, goals_of, run_benchmark
from testbed import messages as m
from tests.shown import shown
from topologies.files import campus54
from topologies.presets import three_tier
from topologies.spec import Campus


@pytest.fixture(scope="module")
def campus() -> Campus:
    return three_tier(20, 2, 1, hosts_per_access=5)


def by_messages(campus: Campus) -> Coordinator:
    """A coordinator whose agents registered, and whose jobs were submitted and started, by events."""
    core = Coordinator(campus, PROTOCOL, Queue(), lambda: 0.0)
    for number, host in enumerate(core.cluster.hosts):
        core.handle(ev.AgentSaid(host, m.Hello(host, 1, 7200, [], [], [], True)), 0.001 * number)
    for number in range(10):
        spec = m.JobSpec(f"job{number + 1}", 360_000, 1.0, 2_000_000_000)
        for effect in core.handle(ev.SubmitAsked(spec, 0.0), 1.0 + number):
            if isinstance(effect, do.Tell) and isinstance(effect.message, m.StartJob):
                started = m.JobStarted(spec.name, effect.message.attempt, 0, "0")
                core.handle(ev.AgentSaid(effect.host, started), 1.5 + number)
    return core


def test_the_world_of_the_benchmark_is_like_one_that_messages_made(campus: Campus) -> None:
    built, made = coordinator_at_work(campus).cluster, by_messages(campus).cluster
    built_hosts, made_hosts = built.hosts.values(), made.hosts.values()
    assert [h.usable for h in built_hosts] == [h.usable for h in made_hosts]
    assert [j.phase for j in built.jobs.values()] == [j.phase for j in made.jobs.values()] == [Phase.RUNNING] * 10
    for world in (built, made):
        for job in world.jobs.values():
            assert job.host is not None and job.name in world.hosts[job.host].jobs
            assert job.standby is not None and job.interval_s is not None and job.attempt == 1
            flow = world.flows[f"{job.name}:{job.host}>{job.standby}"]
            assert flow.rate_bytes_per_s > 0.0
        assert len(world.flows) == len(world.jobs)


def test_a_job_runs_on_each_second_volunteer_and_owners_have_a_past() -> None:
    world = coordinator_at_work(campus54()).cluster
    assert len(world.jobs) == 27
    assert world.hazards.seen(HISTORY_S)[0][0] > 100
    assert len(set(world.hazards.levels(HISTORY_S)[1])) > 1


def test_a_measured_reclaim_is_planned_admitted_and_called_off_again(campus: Campus) -> None:
    at_work = AtWork(coordinator_at_work(campus), 3)
    said: list[do.Effect] = []
    handle = at_work.core.handle

    def listen(event: ev.Event, now_s: float) -> list[do.Effect]:
        effects = handle(event, now_s)
        said.extend(effects)
        return effects

    at_work.core.handle = listen
    at_work._reclaim(1)
    kinds = [type(effect.fact) for effect in said if isinstance(effect, do.Record)]
    assert f.HostReclaimed in kinds and f.MigrationAdmitted in kinds and f.HostReturned in kinds
    assert all(job.phase is Phase.RUNNING for job in at_work.core.cluster.jobs.values())


def test_reclaims_of_one_moment_are_answered_at_once_and_checkpoints_planned_once_for_all(campus: Campus) -> None:
    core = coordinator_at_work(campus)
    core.handle(ev.Woke(), HISTORY_S + 10.0)
    jobs = list(core.cluster.jobs.values())[:3]
    now_s, planned = HISTORY_S + 11.0, []
    for job in jobs:
        effects = core.handle(ev.AgentSaid(job.host, m.OwnerReclaims(600.0, False, [])), now_s)
        planned.append(core.cluster.planned_s)
        told = [effect.message for effect in effects if isinstance(effect, do.Tell) and effect.host == job.host]
        assert any(isinstance(message, m.Migrate) for message in told)
        now_s += 0.01
    assert planned == [HISTORY_S + 11.0] * 3  # with the first; the others' share of it is put off
    assert core.next_deadline_s() == pytest.approx(HISTORY_S + 11.0 + TOGETHER_S)
    core.handle(ev.Woke(), core.next_deadline_s())
    assert core.cluster.planned_s == pytest.approx(HISTORY_S + 11.0 + TOGETHER_S)
    assert core.cluster.plan_at_s == math.inf


def test_goals_name_the_sizes_that_miss_them_and_the_table_has_every_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spread = {"p50": 9e-3, "p99": 30e-3}
    names = ("tick", "periodic_tick", "ten_reclaims")
    monkeypatch.setattr(decisions, "measure_size", lambda hosts: {"jobs": hosts // 2, **dict.fromkeys(names, spread)})
    months = {"cpu_s": 9.0, "run_s": 8.0, "events": 16, "events_per_s": 2.0}
    monkeypatch.setattr(decisions, "two_months", lambda: months)
    result = run_benchmark("decisions", Run(tmp_path, quick=True))
    assert json.loads((tmp_path / "decisions.json").read_text()) == result
    assert {goal.what: goal.met for goal in goals_of(result)} == {
        "a tick at 54 hosts, median": False,
        "the same, p99 over median at 54": False,
        "a tick at 500 hosts, median": False,
        "the same, p99 over median at 500": False,
        "a tick at 5000 hosts, median": True,
        "the same, p99 over median at 5000": False,
        "ten reclaims over one, 500 hosts": True,
        "hosts to the power of ..., the tick": True,
        "61 days of reclaimnet": True,
    }
    text = shown(decisions.tables(result))
    assert "5000 2500 9 (30)" in text and "61 days, 54 hosts, reclaimnet: 9.0 s" in text
