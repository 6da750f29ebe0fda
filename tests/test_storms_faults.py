"""What each fault of a storm does to the world, and that the system goes on."""

from __future__ import annotations

import pytest

from experiments.storms import StormWorld, parse, play
from experiments.storms.commands import perform
from experiments.storms.setup import ground_of

GROUND = (
    "campus hosts=3 on_demand=0 buildings=1 mix=one spare=0\n0 start\n1 submit a steps=300 payload=2000000\n"
)


def world_at(until_s: float, *lines: str) -> StormWorld:
    script = parse(GROUND + "\n".join(lines))
    world = StormWorld(ground_of(script))
    for line in script.lines:
        world.run(line.at_s)
        perform(world, line)
    world.run(until_s)
    return world


@pytest.mark.parametrize(
    "fault",
    [
        "mute @a to 1",
        "mute @a from 6",
        "freeze 1",
        "freeze 5",
        "step @a 60",
        "loss h1 a1 0.01 5",
        "drag ^a 3 5",
        "rot ^a a",
        "stale ^a 3",
        "stale @a 3",
        "oom @a a",
        "overtake @a SnapshotTaken 1",
        "overtake @a Grant 0.1",
        "repeat @a StartJob",
        "repeat ^a CheckpointStored",
    ],
)
def test_a_job_survives(fault: str) -> None:
    outcome = play(parse(GROUND + f"8 {fault}\n9 reclaim @a 5\n16 start\n20 return *"))
    assert outcome.failure is None, outcome.failure
    assert outcome.counts["fact: JobFinished"] == 1


def test_a_direction_that_is_dead_holds_what_is_sent_until_it_works_again() -> None:
    silent = world_at(9.9, "8 mute @a from 2")
    heard = silent.coordinator.cluster.hosts["h1"].lease_until_s
    silent.run(10.1)
    assert silent.coordinator.cluster.hosts["h1"].lease_until_s > heard
    assert silent.coordinator.cluster.hosts["h1"].connected


def test_a_coordinator_that_stands_still_decides_nothing_and_catches_up() -> None:
    world = world_at(9.4, "8 freeze 1.5", "8.1 submit b steps=10")
    assert "b" not in world.jobs
    world.run(9.6)
    assert "b" in world.jobs


def test_a_rotten_checkpoint_is_neither_restored_nor_sent() -> None:
    world = world_at(20.0, "8 rot ^a a", "8 reclaim @a")
    assert world.jobs["a"].attempt >= 3 or world.jobs["a"].restore is None


def test_a_stale_disk_has_what_it_had() -> None:
    world = world_at(7.9, "5 stale ^a 3")
    standby = world.jobs["a"].standby
    assert standby is not None
    had = max(sequence for _, sequence in world.machines[standby].store)
    world.run(8.01)
    assert all(sequence < had for _, sequence in world.machines[standby].store)


def test_a_slow_disk_delays_the_receivers_word() -> None:
    assert len(world_at(12.0, "5 drag ^a 3 5").facts) < len(world_at(12.0).facts)
