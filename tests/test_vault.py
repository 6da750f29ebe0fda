"""The second copy: where it goes, when, and that a job whose host and standby are taken together goes on from it."""

from math import inf

import pytest

from controller.core.lifecycle import checkpoints, second_copy
from controller.core.lifecycle.attempts import reserved_rate, residual, safe_store
from controller.core.lifecycle.second_copy import copies_to_vaults
from controller.core.model import facts as f
from testbed import messages as m
from tests.world import World, a_running_job, a_world

LONG = m.JobSpec("a", 4000, 0.1, 2_000_000, loss_budget_s=1.0)  # an interval of 2 s


def campus_with(hosts: int = 6, on_demand: int = 0, **changed: str) -> World:
    return a_world(hosts, on_demand, buildings=3, **changed)


def has_copy(world: World) -> bool:
    job = world.jobs["a"]
    return job.vault is not None and any(job.vault in known.holders for known in job.checkpoints.values())


def with_copy(world: World) -> World:
    a_running_job(world, LONG)
    assert world.run_until(lambda: has_copy(world), 60.0)
    return world


def test_a_copy_waits_while_others_fill_the_port_of_its_vault(monkeypatch: pytest.MonkeyPatch) -> None:
    world = campus_with(on_demand=1)
    core = world.coordinator.cluster
    specs = [m.JobSpec(name, LONG.steps, LONG.step_s, 20_000_000, loss_budget_s=1.0) for name in "abc"]
    for spec in specs:
        a_running_job(world, spec, world.now_s + 4.0)
    [vault] = {name for name, host in core.hosts.items() if not host.is_volunteer}

    def at_once(until_s: float) -> int:
        """The most that came to the vault at one moment."""
        most = 0
        while world.now_s < until_s:
            world.run(world.now_s + 0.05)
            most = max(most, len(core.flows.to_host(vault)))
        return most

    assert at_once(world.now_s + 60.0) > 1
    monkeypatch.setattr(second_copy, "FEW_COPIES", 1)
    monkeypatch.setattr(second_copy, "FULL", 0.0)  # by whatever comes
    world.run(world.now_s + 20.0)
    assert at_once(world.now_s + 60.0) == 1
    assert all(any(vault in known.holders for known in job.checkpoints.values()) for job in core.jobs.values())
    monkeypatch.setattr(second_copy, "SELDOM", inf)  # over links that streams fill
    world.run(world.now_s + 10.0)
    assert at_once(world.now_s + 10.0) == 0
    assert world.promises() == []


def test_each_checkpoint_is_sent_on_when_the_last_copy_has_arrived() -> None:
    world = with_copy(campus_with(on_demand=1))
    job = world.jobs["a"]
    assert not world.coordinator.cluster.hosts[job.vault].is_volunteer  # a host that nobody can reclaim
    world.run(world.now_s + 30.0)
    held = {
        place: max(known.stored.step for known in job.checkpoints.values() if place in known.holders)
        for place in (job.standby, job.vault)
    }
    assert (held[job.standby] - held[job.vault]) * LONG.step_s <= (job.interval_s or 0.0) * 1.1


def test_a_job_whose_host_and_standby_are_taken_together_goes_on_from_it() -> None:
    world = with_copy(campus_with(12))
    job, hosts = world.jobs["a"], world.coordinator.cluster.hosts
    *first, vault = (hosts[name].spec.building for name in (job.host, job.standby, job.vault))
    assert vault not in first  # nobody is safe here
    [kept] = [known.stored.step for known in job.checkpoints.values() if job.vault in known.holders]
    assert kept > 0
    for name in (job.standby, job.host):
        world.reclaim(name)
    world.run(world.now_s + 5.0)
    last = world.of(f.JobRunning)[-1]
    assert last.attempt > 1
    assert last.step == kept
    assert world.promises() == []


def test_a_vault_that_is_taken_is_replaced() -> None:
    world = with_copy(campus_with())
    lost = world.jobs["a"].vault
    world.reclaim(lost)
    assert world.run_until(lambda: world.jobs["a"].vault != lost and has_copy(world), world.now_s + 60.0)


def test_a_store_that_lately_failed_to_take_a_checkpoint_is_passed_over() -> None:
    world = campus_with(on_demand=2)
    host, core = a_running_job(world, LONG), world.coordinator.cluster
    job, free, found = world.jobs["a"], residual(core, reserved_rate), []
    while (store := safe_store(core, job, host, free)) is not None:
        found.append(store)
        job.obstacles.unfit[store] = inf
    assert sorted(found) == [host.name for host in core.ownerless]


def test_a_copy_that_fails_holds_nobody_up_and_is_tried_again() -> None:
    world = campus_with()
    a_running_job(world, LONG, at_s=1.6)
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
    assert job.host and job.standby and (vault := job.vault)
    narrow = core.routes.route(job.standby, job.vault)[-1]
    world.links.set(narrow.source, narrow.target, 0.01)  # it takes its time
    world.reclaim(job.host, 60.0)
    assert world.run_until(lambda: bool(world.of(f.MigrationFinished)), world.now_s + 60.0)
    assert all(flow.source == job.host for flow in core.flows.values())
    cancelled = [order.destination for name in world.machines for order in world.to(name, m.CancelTransfers)]
    assert vault in cancelled
    assert world.promises() == []


@pytest.mark.parametrize("row", ["reclaimnet-as-printed", "reclaimnet+vault=false"])
def test_rows_without_a_vault_have_one_copy(row: str) -> None:
    world = campus_with(policy=row)
    a_running_job(world, LONG)
    world.run(60.0)
    assert not any(world.to(name, m.SendStored) for name in world.machines)


def test_a_job_whose_only_copy_elsewhere_is_old_sends_another_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_copy(campus_with(on_demand=1))
    job = world.jobs["a"]
    monkeypatch.setattr(checkpoints, "keep_safe", lambda *_: None)  # no more is sent on
    world.run(world.now_s + 10.0)  # intervals of 2 s
    world.reclaim(job.host)
    assert world.run_until(lambda: job.attempt == 2 and job.timer.last_s is not None, 20.0)
    told = [(at_s, fact) for at_s, fact in world.facts if getattr(fact, "attempt", 0) == 2]
    [running_s] = [at_s for at_s, fact in told if isinstance(fact, f.JobRunning)]
    [restored] = [fact.step for _, fact in told if isinstance(fact, f.JobRunning)]
    [taken_s, *_] = [at_s for at_s, fact in told if isinstance(fact, f.CheckpointTaken)]
    [planned, *_] = [fact for _, fact in told if isinstance(fact, f.CheckpointPlanned)]
    kept = max(known.stored.step for known in job.checkpoints.values() if job.vault in known.holders)
    assert (restored - kept) * LONG.step_s > planned.interval_s  # more than an interval's work is on its own host alone
    assert taken_s - running_s < 0.25 * planned.interval_s
