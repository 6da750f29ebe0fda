"""The effect of each fault of a storm on the world; `test_storms.py` shows that the system survives it."""

import pytest

from controller.core.model.facts import JobStopped
from controller.core.network import links
from experiments.results.run_context import migration_shares
from experiments.storms import StormWorld, parse, play
from experiments.storms.commands import perform
from experiments.storms.play import calm, run
from experiments.storms.setup import campus_line
from experiments.storms.verdict import check_admissions, excused_admissions, promises
from testbed.errors import InvariantBroken
from testbed.messages import JobSpec
from topologies.spec import DirectedLink

GROUND = "campus hosts=3 on_demand=0 buildings=1 mix=one\n0 start\n1 submit a steps=300 payload=2000000\n"


def world_of(text: str) -> StormWorld:
    """Play a text as far as its last line."""
    script = parse(text)
    world = StormWorld(script)
    for line in script.lines:
        world.run(line.at_s)
        perform(world, line)
    return world


def world_at(until_s: float, *lines: str) -> StormWorld:
    world = world_of(GROUND + "\n".join(lines))
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


def test_a_coordinator_whose_journal_another_took_decides_nothing_more_and_its_agents_go_to_the_other() -> None:
    world = world_at(8.5, "8 usurp 3")
    old = world.machines["h1"].link
    assert not old.coordinator_open
    assert old.agent_open
    world.run(13.0)
    new = world.machines["h1"].link
    assert new is not old
    assert new.coordinator_open
    assert world.counts["fault: coordinator usurped"] == 1


# ---------------------------------------------------------------- scripts
def test_lines_happen_in_the_order_of_their_times_whatever_the_order_of_the_text() -> None:
    assert [line.verb for line in parse("campus\n2 start\n1 kill h1\n2 return h1").lines] == ["kill", "start", "return"]


def test_a_trigger_acts_once_before_what_was_said_arrives() -> None:
    world = world_of("campus hosts=2\n0 upon StartJob * kill it\n0 start\n1 submit a\n3 start\n4 submit b\n6 start")
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
    assert "more than one copy" in failure.rule


def test_a_host_that_crashed_comes_back_with_its_disk_and_a_clock_that_begins_at_zero() -> None:
    world = world_of("campus hosts=2\n0 start\n1 submit a steps=200 budget=3\n8 crash ^a\n9 start")
    [crashed] = world.clocks
    assert world.clocks[crashed].reads(8.0) == pytest.approx(0.0)
    assert world.machines[crashed].store


# ---------------------------------------------------------------- judges
STORY = """
campus hosts=4 on_demand=0 buildings=1 mix=one
0 start
1 submit a steps=300 payload=30000000
1 submit b steps=300 payload=30000000
9 reclaim @a 12
"""


def world_after(text: str) -> StormWorld:
    script = parse(text)
    world = StormWorld(script)
    run(world, script)
    return world


def test_the_judge_keeps_beta_or_the_minimum_of_each_link_for_research() -> None:
    campus = campus_line(parse("campus hosts=2 beta=0.25")).campus()
    up = DirectedLink("h1", "a1")
    assert migration_shares(campus)[up] == pytest.approx(0.75 * 10e6 * 1448 / 1514)
    assert migration_shares(campus, keeps_reserve=False)[up] == pytest.approx(10e6 * 1448 / 1514)


@pytest.mark.parametrize("borrows", ["false", "true"])
def test_a_coordinator_that_counts_the_reserve_as_its_own_is_found_out(
    borrows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_of_it(wire: dict[DirectedLink, float], *_: object) -> dict[DirectedLink, float]:
        return wire

    story = STORY.replace("0 start", f"settings policy=reclaimnet+borrows={borrows}\n0 start")
    assert play(parse(story)).failure is None
    monkeypatch.setattr(links, "migration_share", all_of_it)
    failure = play(parse(story)).failure
    assert "may be" in failure.rule


def test_research_is_measured_and_has_its_reserve() -> None:
    world = world_after(STORY + "2 research h1 h2\n2 research h2 h1")
    assert len(world.research.samples) > 10
    assert not promises(world)


def test_a_window_in_which_a_cable_was_slow_is_not_held_against_the_system() -> None:
    world = world_after(STORY + "2 research h1 h2\n12 link h1 a1 0.1 4")
    least = min(sample.wire_bytes_per_s for sample in world.research.samples)
    assert least < 3e6
    assert not promises(world)


def test_background_traffic_is_told_to_the_coordinator_and_taken_off_what_it_gives_out() -> None:
    world, up = world_of(STORY + "2 background h1 h2 9e6"), DirectedLink("h1", "a1")
    share = migration_shares(world.env.campus)[up]
    assert world.coordinator.cluster.capacity.spendable[up] < 0.5 * share
    calm(world)
    assert world.coordinator.cluster.capacity.spendable[up] > 0.9 * share


# ---------------------------------------------------------------- admissions that a fault excuses
MOVE = """
campus hosts=4 on_demand=0 buildings=1 mix=one
0 start
1 submit a steps=300 payload=2000000
6 reclaim @a 8
"""


def excuses(*faults: str) -> list[str]:
    """Why each admission of the story is not judged, with these faults in it."""
    return [excuse for _, excuse in excused_admissions(world_after(MOVE + "\n".join(faults)))]


def test_without_a_fault_the_migration_is_judged() -> None:
    assert excuses() == [""]


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("6.5 pause @a 0.2", "an agent stood still"),
        ("6 late @a 0.4 3", "messages were late"),
        ("6 late * 0.4 3", "messages were late"),
        ("6 link h1 a1 0.5 2\n6 link h2 a1 0.5 2\n6 link h3 a1 0.5 2", "a cable was slow"),
        ("5 fill @a\n7 empty @a", "a disk was full"),
        ("5 fail @a snapshot 0.5", ""),  # over before the notice
        ("1 fill @a\n5 empty @a", ""),
        ("20 late * 0.4 1", ""),  # after its end
    ],
)
def test_only_a_fault_on_its_way_and_in_its_time_excuses(fault: str, cause: str) -> None:
    assert excuses(fault) == [cause]


def test_a_judged_migration_that_is_late_breaks_the_promise() -> None:
    world = world_after(MOVE)
    check_admissions(world)
    # as if it had never run on
    world.facts[:] = [timed for timed in world.facts if type(timed[1]).__name__ != "MigrationFinished"]
    with pytest.raises(InvariantBroken, match="in time"):
        check_admissions(world)
