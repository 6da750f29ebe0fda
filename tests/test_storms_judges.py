"""Storms judge by what the campus's description says, not by the account of the code that is judged."""

from __future__ import annotations

import pytest

from controller.core import coordinator
from experiments.results.run_context import migration_shares
from experiments.storms import StormWorld, parse, play
from experiments.storms.commands import perform
from experiments.storms.play import calm, run
from experiments.storms.setup import ground_of
from experiments.storms.verdict import promises
from topologies.spec import DirectedLink

STORY = """
campus hosts=4 on_demand=0 buildings=1 mix=one
0 start
1 submit a steps=300 payload=30000000
1 submit b steps=300 payload=30000000
9 reclaim @a 12
"""


def world_after(text: str) -> StormWorld:
    script = parse(text)
    world = StormWorld(ground_of(script))
    run(world, script)
    return world


def test_the_judge_keeps_beta_or_the_minimum_of_each_link_for_research() -> None:
    campus = ground_of(parse("campus hosts=2 beta=0.25")).campus
    up = DirectedLink("h1", "a1")
    assert migration_shares(campus)[up] == pytest.approx(0.75 * 10e6 * 1448 / 1514)
    assert migration_shares(campus, keeps_reserve=False)[up] == pytest.approx(10e6 * 1448 / 1514)


@pytest.mark.parametrize("borrows", ["false", "true"])
def test_a_coordinator_that_counts_the_reserve_as_its_own_is_found_out(
    borrows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_of_it(capacity: dict[DirectedLink, float], *_: object) -> dict[DirectedLink, float]:
        return capacity

    story = STORY.replace("0 start", f"settings policy=reclaimnet+borrows={borrows}\n0 start")
    assert play(parse(story)).failure is None
    monkeypatch.setattr(coordinator, "migration_share", all_of_it)
    failure = play(parse(story)).failure
    assert failure is not None
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
    script = parse(STORY + "2 background h1 h2 9e6")
    world, up = StormWorld(ground_of(script)), DirectedLink("h1", "a1")
    share = migration_shares(world.env.campus)[up]
    for line in script.lines:
        world.run(line.at_s)
        perform(world, line)
    assert world.coordinator.cluster.capacity.spendable[up] < 0.5 * share
    calm(world)
    assert world.coordinator.cluster.capacity.spendable[up] > 0.9 * share
