"""Faults and the machine's own costs in the virtual world, seen from outside: what the cores are told, and what is true."""

from dataclasses import replace
from typing import Any

import pytest

from controller.core.model import facts as f
from experiments.worlds.virtual import Faults, Overheads
from experiments.worlds.virtual.connections import Connections
from experiments.worlds.virtual.hosts import Disk, Machine, Process
from testbed.enforcement import Enforcement
from testbed.errors import InvariantBroken
from testbed.messages import HeartbeatAck, StartJob, StoredCheckpoint
from tests.world import PROTOCOL, World, a_running_job, a_world, job

LEASE_S, MARGIN_S = PROTOCOL.lease_s, PROTOCOL.fence_margin_s


def quiet_world(hosts: int = 4, on_demand: int = 0, **options: Any) -> World:
    return a_world(hosts, on_demand, **{"seed": 1, "quiet": True, **options})


# ---------------------------------------------------------------- leases without heartbeats
@pytest.mark.parametrize(("quiet", "cut"), [(True, False), (False, False), (False, True)])
def test_a_job_on_a_host_that_falls_silent_is_fenced_a_lease_after_its_last_heartbeat(quiet: bool, cut: bool) -> None:
    world = quiet_world(quiet=quiet)
    host = a_running_job(world, job(), 6.0)
    world.pause(host, 20.0)
    if cut:
        world.cut(host)
    world.run(12.0)
    [stopped] = world.at_s(f.JobStopped)
    least_s = 6.0 + LEASE_S + MARGIN_S - PROTOCOL.heartbeat_s - 0.02
    assert least_s <= stopped <= 6.0 + LEASE_S + MARGIN_S + 0.02
    assert world.of(f.JobStopped)[0].cause == "agent_lost"
    assert world.promises() == []


def test_a_quiet_host_s_heartbeats_are_sent_again_after_a_fault_until_one_is_acknowledged() -> None:
    beats: list[float] = []

    def told(host: str, message: Any) -> None:
        if isinstance(message, HeartbeatAck) and host == "h1":
            beats.append(world.now_s)

    world = quiet_world()
    world.env.told = told
    world.run(30.0)
    assert beats == [pytest.approx(1.0, abs=0.05)], "the first, half a lease after its Hello"
    beats.clear()
    world.pause("h1", 1.0)
    world.run(31.5)
    assert len(beats) >= 1
    beats.clear()
    world.run(60.0)
    assert beats == []


def test_steps_are_known_when_something_is_decided_though_no_heartbeat_told_them() -> None:
    world = quiet_world()
    host = a_running_job(world, job(steps=1000), 20.37)
    [process] = world.machines[host].processes.values()
    true_step = process.step(world.now_s)
    world.reclaim(host)
    world.run(20.6)
    [stopped] = world.of(f.JobStopped)
    assert true_step <= stopped.last_step <= true_step + 1
    assert true_step > 150


# ---------------------------------------------------------------- deaths, links, disks
def test_messages_wait_behind_a_link_that_is_down_and_arrive_in_order() -> None:
    world = quiet_world(quiet=False)
    host = a_running_job(world, job(steps=60))
    access = world.env.campus.access_link(host)
    world.links.set(access.a, access.b, 0.0)
    world.run(world.now_s + 1.0)
    assert world.of(f.HostLost) == []
    world.links.set(access.a, access.b, 1.0)
    world.run(12.0)
    assert world.of(f.JobStopped) == []
    assert [fact.job for fact in world.of(f.JobFinished)] == ["a"]


def test_a_message_that_is_lost_takes_its_connection_with_it() -> None:
    lost: list[Any] = []

    def first_start_is_lost(host: str, message: Any) -> float:
        if isinstance(message, StartJob) and not lost:
            lost.append(host)
            world.cut(host)
        return 0.0

    world = quiet_world(faults=Faults(message=first_start_is_lost))
    world.submit(job(steps=30))
    world.run(15.0)
    assert [fact.host for fact in world.of(f.HostLost)] == lost
    assert [fact.job for fact in world.of(f.JobFinished)] == ["a"]


def test_an_agent_connects_after_pauses_that_double_while_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    longer_s, connect = list[float](), Connections.connect

    def seen(self: Connections, machine: Machine, pause_s: float = 0.0) -> None:
        longer_s.append(pause_s)
        connect(self, machine, pause_s)

    world = a_world(1, 0, buildings=1)
    monkeypatch.setattr(Connections, "connect", seen)
    world.connections.refused = True
    world.connections.hang_up()
    world.run(world.now_s + 3.0)
    assert longer_s[:4] == pytest.approx([0.4, 0.8, 1.0, 1.0])


def test_an_invariant_that_does_not_hold_tells_the_story() -> None:
    world = quiet_world()
    host = a_running_job(world, job(), 1.5)
    world.jobs["a"].host = None
    with pytest.raises(InvariantBroken, match=rf"a: running with host None(.|\n)*{host} <- WorkloadStarted"):
        world.run(world.now_s + 20.0)


# ---------------------------------------------------------------- owners
def test_a_host_that_drains_takes_no_new_transfer_and_finishes_those_that_flow() -> None:
    world = quiet_world(hosts=3)
    host = a_running_job(world, job(loss_budget_s=3.0, payload_bytes=8_000_000), 1.5)
    standby = world.jobs["a"].standby or ""
    while not world.machines[host].transfers:
        world.run(world.now_s + 0.05)
    world.run(world.now_s + 0.05)
    world.env.machines[standby].isolate_at_s = world.now_s + 30.0  # the switch only: nobody is told
    flowing = next(iter(world.machines[host].transfers.values()))
    world.run(world.now_s + 20.0)
    ends = [fact for fact in world.of(f.TransferFinished) if fact.destination == standby]
    assert (ends[0].sequence, ends[0].ok) == (flowing.order.sequence, True)
    assert ends[1:]
    assert not any(fact.ok for fact in ends[1:])


# ---------------------------------------------------------------- rates
def test_the_aggregate_bucket_holds_migrations_to_their_share_even_if_grants_are_wrong() -> None:
    """Without it (`none`) a greedy grant fills the link."""
    rates = {}
    for enforcement in (Enforcement.PACE, Enforcement.NONE):
        world = quiet_world(enforcement=enforcement, checks=False, policy="share")
        host = a_running_job(world, job(payload_bytes=30_000_000, loss_budget_s=3.0), 1.5)
        while not world.machines[host].transfers:
            world.run(world.now_s + 0.05)
        world.run(world.now_s + 0.1)
        to = next(iter(world.machines[host].transfers))
        world.transfers.regrant(world.machines[host], *to, 1e9)
        rates[enforcement] = sum(f.rate_bytes_per_s for f in world.env.network.fluid.flows_from(host))
    carried = 10e6 * 1448 / 1514
    assert rates[Enforcement.PACE] == pytest.approx(0.7 * carried)
    assert rates[Enforcement.NONE] == pytest.approx(carried)


# ---------------------------------------------------------------- models
def test_a_process_stands_still_for_its_snapshots_and_for_no_longer() -> None:
    process = Process(job(steps=100), 1, 10, running_from_s=0.0)
    assert process.step(1.0) == 20
    process.pause(1.0, 0.5)
    assert process.step(1.5) == 20
    assert process.step(2.5) == 30
    process.pause(2.5, 1.0)
    process.pause(3.0, 1.0)  # half of it is over already
    assert process.step(4.0) == 30
    assert process.end_s() == pytest.approx(9.0 + 0.5 + 1.5)


def test_a_receiver_lacks_what_was_rewritten_since_its_checkpoint_less_what_arrived() -> None:
    def checkpoint(sequence: int, step: int) -> StoredCheckpoint:
        return StoredCheckpoint("a", sequence, step, 1000, f"a@{step}")

    disk = Disk()
    assert disk.lacks_bytes(checkpoint(2, 12), 0.05) == 1000.0
    disk.stored["a", 1] = checkpoint(1, 10)
    assert disk.lacks_bytes(checkpoint(2, 12), 0.05) == pytest.approx(100.0)
    assert disk.lacks_bytes(checkpoint(2, 90), 0.05) == 1000.0
    disk.partial["a"] = (12, 60.0)
    assert disk.lacks_bytes(checkpoint(2, 12), 0.05) == pytest.approx(40.0)
    assert disk.lacks_bytes(checkpoint(3, 14), 0.05) == pytest.approx(200.0 - 60.0 * 0.9)
    disk.rotten.add(("a", 1))
    assert disk.lacks_bytes(checkpoint(3, 14), 0.05) == pytest.approx(1000.0 - 60.0 * 0.9)
    for sequence in (2, 3):
        disk.stored.put(checkpoint(sequence, 12), {1})  # which is being sent on
    assert sorted(disk.stored.of("a")) == [1, 3]


def test_what_the_machine_takes_stays_within_what_p3_reserves() -> None:
    from experiments.worlds.virtual.overheads import costs_of

    protocol = replace(PROTOCOL, snapshot_bytes_per_s=1e9)
    costs: Overheads = costs_of(protocol)
    assert costs.start_s[1] + 4 * costs.message_s < PROTOCOL.restart_s
    for payload_bytes in (0.0, 3e9):
        takes_s = costs.snapshot_s[1] + payload_bytes / costs.snapshot_bytes_per_s
        assert takes_s + costs.connect_s + costs.commit_s < protocol.writes_s(payload_bytes)
