"""Reservations on a link, one after another: what sources are told, what is granted when, over real agent cores in memory."""

import random
from functools import partial
from math import inf

import pytest
from msgspec.structs import replace

from controller.core.admission.schedule import GOODPUT, LAG_S, MARGIN_S, TIMES_MORE, Reservation
from controller.core.lifecycle.grants import committed, planned, reservations
from controller.core.model import facts as f
from controller.core.network.links import LEAST_FALL
from testbed import messages as m
from tests.world import PROTOCOL, World, a_world, small_campus
from topologies import presets
from topologies.spec import Campus, ResearchReserve

LEAD_S = 2.0 * PROTOCOL.snapshot_s + LAG_S


def narrow_campus(hosts: int = 8) -> Campus:
    """Two buildings whose uplinks are as narrow as a host's link: moves across follow one another."""
    return presets.three_tier(
        hosts,
        2,
        1,
        access_bytes_per_s=10e6,
        uplink_bytes_per_s=10e6,
        core_bytes_per_s=40e6,
        mix=(presets.GpuShare(presets.RTX3090, 1, 1),),
        reserve=ResearchReserve(beta=0.3),
    )


def with_jobs(campus: Campus, jobs: int, payload_bytes: int, **changed: str) -> World:
    """Jobs run on some hosts; nobody has been reclaimed yet."""
    world = a_world(campus=campus, level_start=8.0, **changed)
    for number in range(jobs):
        world.submit(m.JobSpec(f"j{number}", 3000, 0.1, payload_bytes))
    world.run(4.0)
    return world


def test_a_move_alone_stops_half_way_and_then_has_the_whole_path_at_a_moment_that_is_waited_for() -> None:
    world = with_jobs(small_campus(4, 1), 1, 16_000_000)
    host = world.jobs["j0"].host or ""
    world.reclaim(host, 20.0)
    world.run(4.5)
    [admitted] = world.of(f.MigrationAdmitted)
    [order] = world.to(host, m.Migrate)
    time_s = admitted.notice_s - PROTOCOL.restart_s - MARGIN_S - LEAD_S
    assert order.final_within_s == pytest.approx(time_s / 2)
    [(flow, reservation)] = reservations(world.coordinator.cluster)
    assert flow.floor_bytes_per_s == 0.0  # not begun: it sends what is left
    assert flow.rate_bytes_per_s > 0.0
    assert reservation.left_bytes == pytest.approx(16_000_000 / GOODPUT)
    core = world.coordinator
    assert core.cluster.regrant_at_s == pytest.approx(reservation.final_at_s + reservation.lead_s)
    assert core.next_deadline_s() <= core.cluster.regrant_at_s
    whole = world.coordinator.cluster.capacity.share[
        world.coordinator.cluster.routes.route(host, admitted.destination)[0]
    ]
    assert admitted.floor_bytes_per_s == pytest.approx(whole * (1.0 - LEAST_FALL))
    world.run(26.0)
    assert world.of(f.MigrationFinished)[0].in_time
    assert world.promises() == []


def test_a_move_to_the_standby_which_has_most_of_it_stops_its_job_at_once() -> None:
    world = with_jobs(small_campus(2, 1), 1, 1_000_000)
    job = world.jobs["j0"]
    assert world.run_until(lambda: job.stream.sent_bytes is not None, 60.0)
    host, standby = job.host or "", job.standby
    world.reclaim(host, 20.0)
    world.run(world.now_s + 0.5)
    [order] = world.to(host, m.Migrate)
    assert (order.destination.host, order.final_within_s) == (standby, pytest.approx(0.0))


def test_the_gpu_that_becomes_free_takes_the_job_whose_notice_ends_first_and_of_two_the_one_that_fits_fewest() -> None:
    world = with_jobs(narrow_campus(4), 4, 1_000_000, policy="reclaimnet+short_notices=false")
    jobs, hosts = world.jobs, world.coordinator.cluster.hosts
    for name, notice_s, memory_bytes in (("j0", 60.0, 2e9), ("j1", 40.0, 0.0), ("j2", 40.0, 1e9)):
        jobs[name].spec = replace(jobs[name].spec, memory_bytes=memory_bytes)
        world.reclaim(jobs[name].host, notice_s)
    world.run(8.0)
    assert {fact.job for fact in world.of(f.MigrationDegraded)} == {"j0", "j1", "j2"}
    hosts[jobs["j1"].host].reclaim_at_s = hosts[jobs["j2"].host].reclaim_at_s
    world.cancel("j3")
    world.run(14.0)
    assert [fact.job for fact in world.of(f.MigrationAdmitted)] == ["j2"]


def test_a_newcomer_with_less_time_goes_first_and_nobody_is_late() -> None:
    world = with_jobs(narrow_campus(), 2, 12_000_000)
    slow, urgent = world.jobs["j0"].host or "", world.jobs["j1"].host or ""
    world.reclaim(slow, 9.0)
    world.run(4.4)
    world.reclaim(urgent, 4.0)
    world.run(16.0)
    assert len(world.of(f.MigrationAdmitted)) == 2
    finished = world.of(f.MigrationFinished)
    assert [fact.in_time for fact in finished] == [True, True]
    assert world.promises() == []


@pytest.mark.parametrize(
    "seed", [*range(6), 16, 33]
)  # in the last two, newcomers have reservations begin earlier than was told
def test_every_admitted_move_of_a_wave_is_in_time_and_a_source_always_knows_its_start(seed: int) -> None:
    rng = random.Random(seed)
    world = with_jobs(narrow_campus(), 4, rng.choice([4_000_000, 12_000_000, 20_000_000]))
    hosts = [world.jobs[f"j{n}"].host or "" for n in range(4)]
    for host in hosts:
        world.at(world.now_s + rng.choice([0.0, 1.5, 3.0]), partial(world.reclaim, host, rng.uniform(3.0, 14.0)))
    cluster, admitted = world.coordinator.cluster, 0
    while world.now_s < 24.0:
        world.run(world.now_s + 0.05)
        told = {o.job: at_s + o.final_within_s for at_s, _, o in world.told if isinstance(o, m.Migrate)}
        newcomers = len(world.of(f.MigrationAdmitted)) > admitted
        admitted = len(world.of(f.MigrationAdmitted))
        plan = planned(cluster, committed(cluster, movable=True))
        for flow, reservation in reservations(cluster):
            assert reservation.told
            assert told[flow.job] == pytest.approx(reservation.final_at_s, abs=0.05)
            if newcomers and reservation.since_s is None:
                assert plan.spans[flow.key][0].from_s - reservation.lead_s == pytest.approx(
                    reservation.final_at_s, abs=0.05
                )
    assert admitted
    assert world.promises() == []


# ---------------------------------------------------------------- what is counted
def a_reservation() -> Reservation:
    return Reservation(left_bytes=100.0, due_s=50.0, lead_s=1.0, final_at_s=9.0)


def test_nothing_counts_before_the_final_snapshot_exists() -> None:
    reservation = a_reservation()
    reservation.count(8.0, 50.0)
    assert reservation.left_bytes == 100.0
    reservation.begin(10.0)
    reservation.begin(12.0)  # said twice: the first counts
    reservation.count(11.0, 50.0)
    assert reservation.left_bytes == 50.0
    assert reservation.reserved_bytes_per_s == pytest.approx(50.0 / 39.0)


def test_a_rise_counts_only_when_it_has_arrived_and_a_fall_at_once() -> None:
    reservation = a_reservation()
    reservation.begin(10.0)
    reservation.regranted(10.0, 0.0, 100.0)
    reservation.count(10.5, 100.0)
    assert reservation.left_bytes == pytest.approx(100.0 - 100.0 * (0.5 - LAG_S))
    reservation.regranted(10.5, 100.0, 10.0)
    before = reservation.left_bytes
    reservation.count(11.5, 10.0)
    assert reservation.left_bytes == pytest.approx(before - 10.0)


def test_two_rises_within_a_lag_count_at_the_rate_before_both() -> None:
    reservation = a_reservation()
    reservation.begin(10.0)
    reservation.regranted(10.0, 5.0, 50.0)
    reservation.count(10.0 + LAG_S / 2, 50.0)
    reservation.regranted(10.0 + LAG_S / 2, 50.0, 90.0)
    reservation.count(10.0 + 1.5 * LAG_S, 90.0)
    assert reservation.left_bytes == pytest.approx(100.0 - 5.0 * 1.5 * LAG_S)


def test_a_move_that_had_all_its_bytes_and_is_not_there_gets_some_more_a_few_times() -> None:
    reservation, given = a_reservation(), []
    reservation.begin(10.0)
    for second in range(11, 20):
        reservation.count(float(second), 1000.0)
        given.append(reservation.left_bytes)
    assert given == [pytest.approx(5.0)] * TIMES_MORE + [0.0] * (9 - TIMES_MORE)


def test_a_source_that_was_told_keeps_its_start_unless_it_can_be_told_again() -> None:
    reservation = a_reservation()
    fixed = reservation.request("k", (), inf, 2.0, movable=False)
    assert (fixed.start_s, fixed.due_s, fixed.payload_bytes) == (10.0, 50.0, 100.0)
    movable = reservation.request("k", (), inf, 2.0, movable=True)
    assert (movable.start_s, movable.rather_start_s) == (3.0, 10.0)
    reservation.begin(20.0)
    assert reservation.request("k", (), inf, 21.0, movable=True).start_s == 20.0
