"""Scripts: what can be read, what a line does, and what is wrong with a text is said."""

from __future__ import annotations

import pytest

from controller.core.model.facts import JobStopped
from experiments.storms import StormWorld, parse, play
from experiments.storms.commands import perform
from experiments.storms.setup import ground_of


def world_of(text: str, **options: bool) -> StormWorld:
    """As far as the last line."""
    script = parse(text)
    world = StormWorld(ground_of(script), **options)
    for line in script.lines:
        world.run(line.at_s)
        perform(world, line)
    return world


def test_lines_happen_in_the_order_of_their_times_whatever_the_order_of_the_text() -> None:
    assert [line.verb for line in parse("campus\n2 start\n1 kill h1\n2 return h1").lines] == [
        "kill",
        "start",
        "return",
    ]


def test_a_trigger_acts_once_before_what_was_said_arrives() -> None:
    world = world_of(
        "campus hosts=2\n0 upon StartJob * kill it\n0 start\n1 submit a\n3 start\n4 submit b\n6 start"
    )
    assert world.counts["fault: upon StartJob"] == 1
    assert world.counts["fault: kill"] == 1
    assert world.counts["fact: JobDispatched"] == 3
    assert [fact.cause for _, fact in world.facts if isinstance(fact, JobStopped)] == ["agent_lost"]


def test_a_message_is_late_and_none_overtakes_it() -> None:
    world = world_of("campus hosts=2\n0 start\n2 late h1 0.5 0.3\n2 reclaim h1\n2.1 return h1\n3.5 start")
    heard = [(at_s, type(fact).__name__) for at_s, fact in world.facts if getattr(fact, "host", "") == "h1"]
    [reclaimed_s] = [at_s for at_s, name in heard if name == "HostReclaimed"]
    [returned_s] = [at_s for at_s, name in heard if name == "HostReturned"]
    assert reclaimed_s == pytest.approx(2.5, abs=0.03)
    assert returned_s >= reclaimed_s


def test_a_clock_that_is_slower_than_the_margin_covers_lets_two_copies_run() -> None:
    """So the fence margin is needed, and how much of it: 2 s at 30 % are more than 0.2 s."""
    text = "campus hosts=3\n0 clock {0} 0 0.7\n0 start {0}\n1 submit a steps=300\n2 start\n6 link {1} {2} 0 5"
    failure = play(parse(text.format("h1", "a1", "d1"))).failure
    assert failure is not None
    assert "more than one copy" in failure.rule


def test_a_host_that_crashed_comes_back_with_its_disk_and_a_clock_that_begins_at_zero() -> None:
    world = world_of("campus hosts=2\n0 start\n1 submit a steps=200 budget=3\n8 crash ^a\n9 start")
    [crashed] = world.clocks
    assert world.clocks[crashed].reads(8.0) == pytest.approx(0.0)
    assert world.machines[crashed].store
