"""The second copy: where it goes, when, and that a job whose host and standby are taken together goes on from it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from controller.core.lifecycle.second_copy import EVERY, copies_to_vaults
from controller.core.model import facts as f
from testbed import messages as m
from tests.cores_world import SETTINGS, CoresWorld, a_running_job, small_campus

LONG = m.JobSpec("a", 4000, 0.1, 2_000_000, loss_budget_s=1.0)  # an interval of 2 s


def campus_with(hosts: int = 6, on_demand: int = 0, buildings: int = 3, **settings: str) -> CoresWorld:
    world = CoresWorld(
        small_campus(hosts, on_demand, buildings), replace(SETTINGS, level_start=3.0, **settings)
    )
    world.start()
    world.run(0.5)
    return world


def has_copy(world: CoresWorld) -> bool:
    job = world.jobs["a"]
    return job.vault is not None and any(job.vault in known.holders for known in job.checkpoints.values())


def with_copy(world: CoresWorld) -> CoresWorld:
    a_running_job(world, LONG)
    assert world.run_until(lambda: has_copy(world), 60.0)
    return world


def test_a_volunteer_of_another_building_keeps_it_where_nobody_is_safe() -> None:
    world = with_copy(campus_with())
    job, hosts = world.jobs["a"], world.coordinator.cluster.hosts
    *first, vault = (hosts[name].spec.building for name in (job.host, job.standby, job.vault) if name)
    assert vault not in first


def test_a_host_that_nobody_can_reclaim_comes_first() -> None:
    world = with_copy(campus_with(on_demand=1))
    assert not world.coordinator.cluster.hosts[world.jobs["a"].vault or ""].is_volunteer


def test_it_is_brought_up_to_date_as_seldom_as_said() -> None:
    world = with_copy(campus_with())
    world.run(world.now_s + 60.0)
    job = world.jobs["a"]
    assert job.interval_s is not None
    sent = [order.sequence for name in world.machines for order in world.to(name, m.SendStored)]
    steps = {fact.sequence: fact.step for fact in world.of(f.CheckpointCompleted)}
    apart_s = [(steps[b] - steps[a]) * LONG.step_s for a, b in pairwise(sent)]
    assert len(apart_s) >= 3
    assert min(apart_s) >= EVERY * job.interval_s * 0.95
    assert max(apart_s) <= (EVERY + 2.0) * job.interval_s


def test_a_job_whose_host_and_standby_are_taken_together_goes_on_from_it() -> None:
    world = with_copy(campus_with())
    job = world.jobs["a"]
    [kept] = [known.stored.step for known in job.checkpoints.values() if job.vault in known.holders]
    assert kept > 0
    for name in (job.standby, job.host):
        assert name is not None
        world.reclaim(name)
    world.run(world.now_s + 5.0)
    last = world.of(f.JobRunning)[-1]
    assert last.attempt > 1
    assert last.step == kept
    assert world.promises() == []


def test_a_vault_that_is_taken_is_replaced() -> None:
    world = with_copy(campus_with())
    lost = world.jobs["a"].vault
    assert lost is not None
    world.reclaim(lost)
    assert world.run_until(lambda: world.jobs["a"].vault != lost and has_copy(world), world.now_s + 60.0)


def test_a_copy_that_fails_holds_nobody_up_and_is_tried_again() -> None:
    world = campus_with()
    a_running_job(world, LONG)
    world.send_failures = 1.0
    world.run(30.0)
    assert not has_copy(world)
    world.send_failures = 0.0
    assert world.run_until(lambda: has_copy(world), 120.0)
    assert world.promises() == []


def test_a_copy_under_way_when_the_coordinator_dies_is_sent_again() -> None:
    world = campus_with()
    a_running_job(world, m.JobSpec(LONG.name, LONG.steps, LONG.step_s, 20_000_000, loss_budget_s=1.0))
    assert world.run_until(lambda: world.jobs["a"].vault is not None, 300.0)
    world.restart_coordinator(down_s=0.5)
    assert not has_copy(world)
    assert world.run_until(lambda: has_copy(world), 600.0)
    assert world.promises() == []


def test_a_copy_under_way_when_its_job_moves_is_called_off() -> None:
    world = campus_with()
    a_running_job(world, m.JobSpec(LONG.name, LONG.steps, LONG.step_s, 20_000_000, loss_budget_s=1.0))
    core, job = world.coordinator.cluster, world.jobs["a"]
    assert world.run_until(lambda: bool(copies_to_vaults(core, job.standby or "")), 300.0)
    assert job.host and job.standby and job.vault
    narrow = core.routes.route(job.standby, job.vault)[-1]
    world.set_link(narrow.source, narrow.target, 0.01)  # it takes its time
    world.reclaim(job.host, 60.0)
    assert world.run_until(lambda: bool(world.of(f.MigrationFinished)), world.now_s + 60.0)
    assert all(flow.source == job.host for flow in core.flows.values())
    cancelled = [order.destination for name in world.machines for order in world.to(name, m.CancelTransfers)]
    assert cancelled == [job.vault]
    assert world.promises() == []


@pytest.mark.parametrize("row", ["reclaimnet-as-printed", "no-vault"])
def test_rows_without_a_vault_have_one_copy(row: str) -> None:
    world = campus_with(policy=row)
    a_running_job(world, LONG)
    world.run(60.0)
    assert not any(world.to(name, m.SendStored) for name in world.machines)
