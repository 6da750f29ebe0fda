"""Jobs of several ranks: all of them, or none, in the queue, in P1, P2 and P3, and whatever goes wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.lifecycle.second_copy import in_vaults
from controller.core.model import facts as f
from controller.core.model.entities import JobState, Phase
from controller.core.model.events import CancelAsked
from experiments.storms import generate, play
from experiments.storms.mutants import BY_NAME, planted
from testbed.messages import Grant, JobSpec, StopJob
from tests.cores_world import SETTINGS, CoresWorld, calm_and_finish, small_campus


def gang(
    name: str = "g", ranks: int = 3, steps: int = 300, payload_bytes: int = 2_000_000, **more: Any
) -> JobSpec:
    return JobSpec(name, steps, 0.1, payload_bytes, ranks=ranks, **more)


def a_world(hosts: int = 6, on_demand: int = 0, **settings: Any) -> CoresWorld:
    world = CoresWorld(small_campus(hosts, on_demand), replace(SETTINGS, **{"level_start": 8.0, **settings}))
    world.start()
    world.run(0.8)
    return world


def ranks_of(world: CoresWorld, name: str = "g") -> list[Any]:
    return world.coordinator.cluster.gangs[name].ranks


def phases(world: CoresWorld, name: str = "g") -> set[Phase]:
    return {rank.phase for rank in ranks_of(world, name)}


def a_running_gang(world: CoresWorld, until_s: float = 8.0, **spec: Any) -> list[str]:
    world.submit(gang(**spec))
    world.run(until_s)
    assert phases(world) == {Phase.RUNNING}
    return [rank.host for rank in ranks_of(world)]


def test_a_gang_starts_on_as_many_gpus_at_once_and_finishes_at_once() -> None:
    world = a_world()
    a_running_gang(world, 4.0, steps=100)
    calm_and_finish(world)
    dispatched = [at for at, fact in world.facts if isinstance(fact, f.JobDispatched)]
    finished = [at for at, fact in world.facts if isinstance(fact, f.JobFinished)]
    assert len(dispatched) == len(finished) == 3
    assert len(set(dispatched)) == len(set(finished)) == 1


@pytest.mark.parametrize("how", ["reclaim", "kill", "oom"])
def test_when_a_rank_is_lost_all_resume_from_one_step(how: str) -> None:
    world = a_world()
    hosts = a_running_gang(world, 20.0)
    if how == "reclaim":
        world.reclaim(hosts[1])
    elif how == "kill":
        world.kill(hosts[1], 0.01)
    else:
        assert world.workloads.kill_from_outside(world.machines[hosts[1]], "g.1of3")
    world.run(22.0)
    calm_and_finish(world)
    again = [fact for fact in world.of(f.JobDispatched) if fact.attempt == 2]
    assert len(again) == 3
    assert len({(fact.restore_step, fact.restore_sequence) for fact in again}) == 1
    assert again[0].restore_step > 0


@pytest.mark.parametrize("leave", [1, 2])
def test_a_notice_moves_only_the_bytes_of_the_ranks_there_and_all_go_on_from_the_last_step(
    leave: int,
) -> None:
    world = a_world(hosts=8)
    hosts = a_running_gang(world, 20.0)
    [left] = {host for host in hosts if hosts.count(host) == leave}
    world.reclaim(left, 8.0)
    world.run(29.0)
    calm_and_finish(world)
    moved = world.of(f.MigrationFinished)
    assert len(moved) == leave
    assert all(fact.in_time and fact.source == left for fact in moved)
    again = {fact.job: fact.host for fact in world.of(f.JobDispatched) if fact.attempt == 2}
    assert len(again) == 3
    stays = [rank.name for rank, host in zip(ranks_of(world), hosts, strict=True) if host != left]
    assert [again[name] for name in stays] == [host for host in hosts if host != left]
    assert world.of(f.WorkLost) == []
    planned = {fact.job for fact in world.of(f.Granted) if fact.traffic_class == "planned"}
    assert planned == {fact.job for fact in moved}


def test_rank_whose_last_state_has_arrived_leaves_the_link_to_the_others_of_its_gang() -> None:
    world = a_world(hosts=8)
    hosts = a_running_gang(world, 20.0, payload_bytes=16_000_000)
    [left] = {host for host in hosts if hosts.count(host) == 2}
    world.reclaim(left, 20.0)
    world.run(39.0)
    leaving = [rank.name for rank, host in zip(ranks_of(world), hosts, strict=True) if host == left]
    assert {move.job for move in world.of(f.MigrationFinished)} == set(leaving)
    arrived = [
        (at_s, fact.job)
        for at_s, fact in world.facts
        if isinstance(fact, f.CheckpointCompleted) and fact.job in leaving and at_s > 20.5
    ]
    first_s, first = arrived[0]
    granted = {
        word.job: word.rate_bytes_per_s
        for at_s, name, word in world.told
        if name == left and isinstance(word, Grant) and 20.0 < at_s <= first_s
    }
    assert granted[first] == 0.0
    assert [rate > 0.0 for name, rate in granted.items() if name != first] == [True]


def test_a_gang_that_cannot_move_before_its_notice_ends_resumes_from_its_last_whole_checkpoint() -> None:
    world = a_world(hosts=8)
    hosts = a_running_gang(world, 20.0, payload_bytes=30_000_000)
    world.reclaim(hosts[0], 1.0)
    world.run(22.5)
    calm_and_finish(world)
    assert world.of(f.MigrationDegraded)
    stopped = [fact for fact in world.of(f.JobStopped) if fact.attempt == 1]
    assert {fact.cause for fact in stopped} == {"deadline"}
    assert len(stopped) == 3


@pytest.mark.parametrize("after_s", [0.0, 0.5])
def test_a_second_notice_at_a_rank_that_waits_takes_that_one_away_too_and_loses_nothing(
    after_s: float,
) -> None:
    """Before the last snapshot both move; after it, all come back from it."""
    world = a_world(hosts=10)
    hosts = a_running_gang(world, 20.0, payload_bytes=8_000_000)
    first, second = sorted(set(hosts))[:2]
    world.reclaim(first, 12.0)
    world.run(20.0 + after_s)
    world.reclaim(second, 11.0)
    world.run(31.0)
    assert not {rank.host for rank in ranks_of(world)} & {first, second}
    assert phases(world) == {Phase.RUNNING}
    calm_and_finish(world)
    if after_s == 0.0:
        assert {fact.source for fact in world.of(f.MigrationFinished)} == {first, second}
    assert {fact.attempt for fact in world.of(f.JobDispatched) if fact.job == "g.0of3"} == {1, 2}
    assert world.of(f.WorkLost) == []


def test_an_owner_who_returns_before_the_last_snapshot_keeps_the_whole_gang_where_it_is() -> None:
    world = a_world(hosts=8)
    hosts = a_running_gang(world, 20.0, payload_bytes=8_000_000)
    world.reclaim(hosts[0], 12.0)
    world.run(20.5)
    assert phases(world) == {Phase.MOVING}
    world.give_back(hosts[0])
    world.run(21.5)
    assert phases(world) == {Phase.RUNNING}
    assert [rank.host for rank in ranks_of(world)] == hosts
    calm_and_finish(world)
    assert {fact.attempt for fact in world.of(f.JobDispatched)} == {1}


def test_a_gang_that_waits_holds_no_gpu_and_two_gangs_cannot_block_each_other() -> None:
    world = a_world(hosts=4)  # five GPUs
    gpus = sum(host.spec.gpus for host in world.coordinator.cluster.volunteers)
    for name in ("a", "b", "c"):
        world.submit(gang(name, ranks=gpus - 1, steps=50))
    world.run(4.0)
    held = [host for host in world.coordinator.cluster.volunteers if host.jobs]
    assert {name for host in held for name in host.jobs} == {rank.name for rank in ranks_of(world, "a")}
    calm_and_finish(world)
    began = {fact.job: at for at, fact in world.facts if isinstance(fact, f.JobDispatched)}
    assert (
        began[ranks_of(world, "a")[0].name]
        < began[ranks_of(world, "b")[0].name]
        < began[ranks_of(world, "c")[0].name]
    )


@pytest.mark.parametrize("patience_s", [3.0, 1000.0])
def test_single_jobs_overtake_a_gang_for_a_bounded_time(patience_s: float) -> None:
    """A stream of single jobs that would hold some GPU for ever: the gang starts once nothing may overtake it any more."""
    world = a_world(hosts=4, target_delay_s=patience_s, level_max=1000.0, level_start=1000.0)
    gpus = sum(host.spec.gpus for host in world.coordinator.cluster.volunteers)
    for n in range(30):
        world.at(1.0 + 0.8 * n, lambda n=n: world.submit(JobSpec(f"s{n}", 30 + n % 7, 0.1, 100_000)))
    world.at(6.0, lambda: world.submit(gang(ranks=gpus, steps=20, payload_bytes=100_000)))
    world.run(24.0)
    started = [
        at for at, fact in world.facts if isinstance(fact, f.JobDispatched) and fact.job == f"g.0of{gpus}"
    ]
    assert bool(started) == (patience_s == 3.0)
    calm_and_finish(world)


def test_a_gang_that_no_campus_can_hold_or_with_a_rank_s_name_is_refused_with_the_reason() -> None:
    world = a_world(hosts=8, on_demand=1)
    answers = []
    perform = world._perform
    world._perform = lambda effect: (answers.append(effect), perform(effect))[1]  # type: ignore[method-assign]
    for spec in (gang(ranks=20), JobSpec("x.0of2", 10, 0.1, 1000), gang("n" * 60), gang(ranks=5)):
        world.submit(spec)
    said = [effect.message.reason for effect in answers if hasattr(effect, "operator")]
    assert said[0].startswith("no volunteer hosts have 20 GPUs")
    assert said[1] == "a name that ends so is that of a gang's rank"
    assert said[2].startswith("its ranks would be called n")
    assert said[3].startswith("no on_demand hosts have 5 GPUs")
    assert said[3].endswith("and the queue may send a job there")
    assert not world.jobs


def test_an_on_demand_gang_takes_all_its_slots_at_once() -> None:
    world = a_world(hosts=3, on_demand=2, level_start=0.0, level_max=0.0)
    world.submit(gang("a", ranks=2, steps=60), 0.5)
    world.submit(gang("b", ranks=3, steps=60), 0.5)
    world.submit(JobSpec("s", 30, 0.1, 1000), 0.5)
    calm_and_finish(world)
    cost = {fact.job: fact.cost for fact in world.of(f.JobDispatched)}
    assert set(cost.values()) <= {world.settings.on_demand_cost, 1.0}


def test_the_hazard_of_a_gang_is_that_of_its_hosts_together_and_its_ranks_have_one_interval() -> None:
    world = a_world(hosts=8)
    hosts = a_running_gang(world, 8.0)
    cluster = world.coordinator.cluster
    ranks = ranks_of(world)
    shared = cluster.hazards_now_per_s(ranks, world.now_s)
    singles = [JobState(gang(host, ranks=1), 0.0, host=host) for host in sorted(set(hosts))]
    alone = cluster.hazards_now_per_s(singles, world.now_s)
    assert shared.tolist() == pytest.approx([shared[0]] * 3)
    assert shared[0] == pytest.approx(alone.sum())
    assert shared[0] > alone.max()
    assert len({rank.interval_s for rank in ranks}) == 1


def test_ranks_take_their_checkpoints_at_one_step_and_old_parts_go() -> None:
    world = a_world(hosts=8)
    a_running_gang(world, 60.0, steps=2000)
    steps: dict[int, set[int]] = {}
    for fact in world.of(f.CheckpointTaken):
        steps.setdefault(fact.sequence, set()).add(fact.step)
    assert len(steps) > 5
    assert all(len(found) == 1 for found in steps.values())
    held = [
        len([key for key in machine.store if key[0].startswith("g.")]) for machine in world.machines.values()
    ]
    assert sum(held) <= 3 * 2 * 3  # each rank's host and standby, at most three parts each


def test_a_gang_is_moved_by_nobody_while_a_rank_still_starts_and_is_then() -> None:
    world = a_world(hosts=8)
    world.submit(gang())
    world.run(0.9)
    host = ranks_of(world)[0].host
    world.reclaim(host, 9.0)
    world.run(12.0)
    calm_and_finish(world)
    assert {fact.in_time for fact in world.of(f.MigrationFinished)} == {True}


def test_a_rank_that_fails_for_good_ends_the_gang_and_frees_every_gpu() -> None:
    world = a_world(hosts=6)
    world.workload_failures = 1.0
    world.submit(gang())
    world.run(6.0)
    assert phases(world) == {Phase.FAILED}
    assert not any(host.jobs for host in world.coordinator.cluster.hosts.values())
    assert {fact.job for fact in world.of(f.JobFailed)} == {rank.name for rank in ranks_of(world)}
    assert not any(world.copies(rank.name) for rank in ranks_of(world))


def test_ranks_that_were_left_are_told_to_stop_once() -> None:
    world = a_world()
    hosts = a_running_gang(world, 20.0)
    world.reclaim(hosts[0])
    world.run(24.0)
    told = [m for _, host, m in world.told if isinstance(m, StopJob) and host != hosts[0]]
    assert len(told) == len({m.job for m in told})
    calm_and_finish(world)


@pytest.mark.parametrize("until_s", [0.85, 20.0])
def test_a_gang_is_cancelled_as_one_by_its_name_or_a_rank_s(until_s: float) -> None:
    """While its ranks start, and while they compute."""
    world = a_world()
    world.submit(gang())
    world.run(until_s)
    world.decide(CancelAsked("g" if until_s > 1.0 else "g.2of3"))
    world.run(until_s + 8.0)
    assert phases(world) == {Phase.CANCELLED}
    assert not any(host.jobs for host in world.coordinator.cluster.hosts.values())
    assert not any(world.copies(rank.name) for rank in ranks_of(world))
    calm_and_finish(world)


@pytest.mark.parametrize("seed", [1, 58, 121, 176, 387, 459])
def test_storms_with_gangs_keep_every_promise(seed: int) -> None:
    """Seeds that found a fault once."""
    outcome = play(generate(seed, gangs=True))
    assert outcome.failure is None


def test_a_storm_notices_when_ranks_that_stay_are_not_stopped() -> None:
    with planted(BY_NAME["ranks that stay not stopped"]):
        assert play(generate(16, gangs=True)).failure is not None


def with_gang(policy: str = "reclaimnet") -> tuple[CoresWorld, list[Any]]:
    """A gang of three on hosts of owners only, in three buildings, with some checkpoints behind it."""
    world = CoresWorld(small_campus(8, 0, 3), replace(SETTINGS, level_start=8.0, policy=policy))
    world.start()
    world.run(0.8)
    a_running_gang(world, 8.0, steps=1500, loss_budget_s=1.0)
    return world, ranks_of(world)


def lose_a_rank_with_its_standby(world: CoresWorld) -> list[Any]:
    """What all ranks go on with then."""
    rank = ranks_of(world)[0]
    for name in (rank.standby, rank.host):
        world.reclaim(name)
    world.run(world.now_s + 5.0)
    assert phases(world) == {Phase.RUNNING}
    begun = [fact for fact in world.of(f.JobDispatched) if fact.attempt == rank.attempt]
    assert len(begun) == 3
    return begun


def test_all_parts_of_one_step_are_sent_on_and_bring_all_ranks_back_where_a_host_goes_with_its_standby() -> (
    None
):
    world, ranks = with_gang()
    cluster = world.coordinator.cluster
    gang_ = cluster.gangs["g"]
    assert world.run_until(lambda: in_vaults(cluster, gang_) is not None, 120.0)
    for rank in ranks:
        assert rank.vault not in (rank.host, rank.standby)
    kept = in_vaults(cluster, gang_)
    assert kept is not None
    steps = {rank.checkpoints[kept].stored.step for rank in ranks}
    again = lose_a_rank_with_its_standby(world)
    assert len({(fact.restore_step, fact.restore_sequence) for fact in again}) == 1
    assert again[0].restore_step >= max(steps) > 0
    calm_and_finish(world)


def test_without_a_vault_that_gang_begins_again() -> None:
    world, _ = with_gang("no-vault")
    world.run(60.0)
    assert all(rank.vault is None for rank in ranks_of(world))
    again = lose_a_rank_with_its_standby(world)
    assert {fact.restore_step for fact in again} == {0}


@pytest.mark.parametrize("send_failures", [0.0, 0.3])
def test_what_is_whole_in_the_vaults_stays_until_something_newer_is(send_failures: float) -> None:
    """Also where some parts of a newer one arrive, and others do not."""
    world, ranks = with_gang()
    world.send_failures = send_failures
    cluster = world.coordinator.cluster
    gang_ = cluster.gangs["g"]
    assert world.run_until(lambda: in_vaults(cluster, gang_) is not None, 120.0)
    best, seen = 0, set()
    while world.now_s < 130.0:
        world.run(world.now_s + 0.5)
        whole = in_vaults(cluster, gang_)
        if whole is None:  # after misses a rank's vault has become its standby, and another is to be filled
            assert send_failures > 0.0
            continue
        assert whole >= best
        best = whole
        seen.add(whole)
        for rank in ranks:  # truly on the vault's disk
            assert (rank.name, whole) in world.machines[rank.vault].store
    assert len(seen) > 3
