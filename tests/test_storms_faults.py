"""The effect of each fault of a storm on the world; `test_storms.py` shows that the system survives it."""

from __future__ import annotations

from experiments.storms import StormWorld, parse
from experiments.storms.commands import perform
from experiments.storms.setup import ground_of
from testbed.messages import JobSpec

GROUND = "campus hosts=3 on_demand=0 buildings=1 mix=one\n0 start\n1 submit a steps=300 payload=2000000\n"


def world_at(until_s: float, *lines: str) -> StormWorld:
    script = parse(GROUND + "\n".join(lines))
    world = StormWorld(ground_of(script))
    for line in script.lines:
        world.run(line.at_s)
        perform(world, line)
    world.run(until_s)
    return world


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


def test_an_event_that_was_being_written_when_the_coordinator_died_is_not_in_its_journal() -> None:
    world = world_at(7.99, "8 tear 0.5", "8.1 submit b steps=10")
    world.torn_for_s = 0.5
    world.submit(JobSpec("c", 10, 0.1, 100_000))
    assert "c" not in world.jobs
    assert world.connections.refused
    world.run(12.0)
    assert "c" in world.jobs, "its user heard no answer and submitted it again"


def test_a_coordinator_whose_journal_another_took_decides_nothing_more_and_its_agents_go_to_the_other() -> (
    None
):
    world = world_at(8.5, "8 usurp 3")
    old = world.machines["h1"].link
    assert old is not None
    assert not old.coordinator_open
    assert old.agent_open
    world.run(13.0)
    new = world.machines["h1"].link
    assert new is not None
    assert new is not old
    assert new.coordinator_open
    assert world.counts["fault: coordinator usurped"] == 1
