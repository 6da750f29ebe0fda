"""What the baselines do in place of P1, P2 and P3: Slurm's queue, waiting for one's own host, a replica that computes too."""

from typing import Any

import pytest

from controller.core.model import facts as f
from controller.core.model.entities import Phase
from controller.core.parameters import DAY_S
from controller.core.placement.select import NoDestination, PlacementRequest
from controller.core.policies.baselines import SLOWDOWN, SLURM_REQUEUE_WAIT_S, TAKEOVER_S
from controller.core.policies.table import policy
from testbed import messages as m
from tests.offered_hosts import Candidate, in_columns, over_hosts
from tests.world import PROTOCOL, STEP_S, World, a_running_job, a_world, job

TIME = PROTOCOL.day_s / DAY_S  # the small world's time scale


def small(system: str, hosts: int = 6, on_demand: int = 0, **changed: Any) -> World:
    return a_world(hosts, on_demand, policy=system, seed=1, **changed)


# ---------------------------------------------------------------- selectors of the baselines
WANTED = PlacementRequest("s", 1e9, 1e9, 7.0, 3600.0, None, 5.0, "north")


def host(name: str, building: str, memory_bytes: float = 24e9) -> Candidate:
    return Candidate(name, building, 1, memory_bytes, 8.6, 0.0, 1e8, 0.5)


def test_slurm_takes_the_first_node_of_its_table_that_can_run_the_job() -> None:
    hosts = [host("n3", "north"), host("n1", "north", 1e8), host("n2", "south")]
    chosen = over_hosts(policy("slurm-pr").select)(WANTED, hosts, draw=0.9)
    assert chosen.host == "n2"


def test_a_replica_is_put_into_another_building_if_there_is_room() -> None:
    select = policy("bamboo").standby
    hosts = [host("n1", "north"), host("n2", "south"), host("n3", "east"), host("n4", "north")]

    def chosen(among: list[Candidate], draw: float) -> str:
        choice = select(WANTED, in_columns(among), draw=draw)
        return choice.host

    assert {chosen(hosts, draw / 10) for draw in range(10)} == {"n2", "n3"}
    assert {chosen([hosts[0], hosts[3]], draw / 10) for draw in range(10)} == {"n1", "n4"}
    assert isinstance(select(WANTED, in_columns([]), draw=0.5), NoDestination)


# ---------------------------------------------------------------- no migration
def test_no_migration_sends_nothing_and_waits_for_its_host() -> None:
    world = small("no-migration")
    first = world.running(until_s=40.0)
    world.reclaim(first, 4.0)
    world.run(60.0)
    assert world.jobs["a"].phase is Phase.WAITING
    assert world.coordinator.cluster.homes == {"a": first}
    assert len(world.of(f.CheckpointTaken)) >= 1
    world.give_back(first)
    world.run(62.0)
    again = world.of(f.JobRunning)[-1]
    assert again.host == first
    assert again.step == world.of(f.CheckpointTaken)[-1].step > 0
    assert world.messages(m.Migrate) == world.messages(m.SendStored) == world.of(f.TransferFinished) == []
    assert not world.coordinator.cluster.homes


def test_no_migration_gives_the_gpu_of_a_host_that_is_lent_again_to_who_waited_for_it() -> None:
    world = small("no-migration", hosts=2)
    world.submit(job("b"))
    world.submit(job("c"))
    first = world.running(until_s=40.0)
    world.reclaim(first)
    world.submit(job("younger"))
    world.run(42.0)
    world.give_back(first)
    world.run(44.0)
    assert world.jobs["a"].host == first
    assert world.jobs["younger"].phase is Phase.WAITING


# ---------------------------------------------------------------- slurm
def test_slurm_s_job_goes_back_to_the_queue_and_waits_before_it_starts_again() -> None:
    world = small("slurm-pr")
    first = world.running(until_s=14.0)
    world.reclaim(first)
    world.run(14.5)
    wait_s = SLURM_REQUEUE_WAIT_S * TIME
    assert world.jobs["a"].phase is Phase.WAITING
    assert world.coordinator.cluster.requeued.keys() == {"a"}
    [waits] = world.of(f.JobWaits)
    assert "requeued" in waits.reason
    world.run(30.0)
    stopped_s, again_s = world.at_s(f.JobStopped)[0], world.at_s(f.JobDispatched)[1]
    assert again_s - stopped_s == pytest.approx(wait_s)
    assert world.of(f.JobDispatched)[1].restore_sequence is not None
    assert not world.coordinator.cluster.requeued


def test_slurm_s_period_is_ten_minutes_whatever_a_checkpoint_takes() -> None:
    world = small("slurm-pr")
    world.running(payload_bytes=40_000_000)
    assert {message.interval_s for message in world.messages(m.Protect)} == {600.0 * TIME}


def test_slurm_s_images_lie_where_nobody_reclaims() -> None:
    with_room, with_head = small("slurm-pr", on_demand=1), small("slurm-pr", head_stores=True)
    without = small("slurm-pr")
    for world in (with_room, with_head, without):
        world.running()
    assert {message.standby.host for message in with_room.messages(m.Protect)} == {"od1"}
    assert {message.standby.host for message in with_head.messages(m.Protect)} == {"coord"}
    assert "coord" not in without.machines
    assert all(message.standby.host.startswith("h") for message in without.messages(m.Protect))


@pytest.mark.parametrize("system", ["reclaimnet", "no-tc-bpf", "random-dst", "tv-fixed-interval"])
def test_where_the_head_node_keeps_checkpoints_every_row_with_a_second_copy_has_it_there(system: str) -> None:
    world = small(system, head_stores=True)
    world.running(until_s=40.0, steps=2000)
    assert world.jobs["a"].vault == "coord"
    assert any("coord" in known.holders for known in world.jobs["a"].checkpoints.values())


# ---------------------------------------------------------------- bamboo
def replica(world: World, name: str = "a") -> str:
    """The host of its replica; a GPU is held there."""
    standby = world.jobs[name].standby
    assert name in world.coordinator.cluster.hosts[standby].jobs
    return standby


def test_a_replica_holds_a_gpu_in_another_building() -> None:
    world = small("bamboo")
    first = world.running()
    buildings = {each.name: each.building for each in world.env.campus.hosts}
    assert buildings[replica(world)] != buildings[first]
    assert sum("a" in state.jobs for state in world.coordinator.cluster.hosts.values()) == 2


def test_an_emergency_costs_a_replicated_job_no_restart_and_at_most_one_step() -> None:
    world = small("bamboo")
    first, second = world.running(), ""
    second = replica(world)
    world.at(12.34, lambda: world.reclaim(first))
    world.run(13.0)
    assert world.replicas.taken_over == 1
    run = world.of(f.JobRunning)[-1]
    assert (run.host, run.attempt) == (second, 2)
    assert run.downtime_s == pytest.approx(TAKEOVER_S * TIME, abs=0.01)
    assert sum(fact.work_lost_s for fact in world.of(f.WorkLost)) <= STEP_S
    assert {order.destination.host for order in world.messages(m.SendStored)} <= {world.jobs["a"].vault}  # a copy
    assert run.step > 80


def test_a_replica_takes_over_from_a_dead_agent_once_its_lease_has_lapsed() -> None:
    world = small("bamboo")
    first, second = world.running(), ""
    second = replica(world)
    world.kill(first)
    world.run(20.0)
    assert world.jobs["a"].host == second
    assert sum(fact.work_lost_s for fact in world.of(f.WorkLost)) <= STEP_S


def test_redundant_computation_makes_every_step_longer() -> None:
    ends = {}
    for system in ("reclaimnet", "bamboo"):
        world = small(system)
        world.submit(job(steps=200))
        world.run(60.0)
        [(begun_s, _)] = [(at_s, fact) for at_s, fact in world.facts if isinstance(fact, f.JobRunning)]
        ends[system] = world.at_s(f.JobFinished)[0] - begun_s
    assert ends["reclaimnet"] == pytest.approx(200 * STEP_S, rel=0.1)
    assert ends["bamboo"] == pytest.approx(200 * STEP_S * (1.0 + SLOWDOWN), rel=0.1)


def test_a_job_without_a_gpu_for_its_replica_keeps_the_standby_that_it_has() -> None:
    world = a_world(3, 0, buildings=1, policy="bamboo")
    for name in "abc":
        a_running_job(world, job(name, payload_bytes=100_000), world.now_s + 4.0)
    world.run(world.now_s + 20.0)
    assert all(each.standby for each in world.jobs.values())
    assert not any(world.to(name, m.Unprotect) for name in world.machines)
