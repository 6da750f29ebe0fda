"""A scenario through the heap, and through the live hosts' code over streams in memory: same decisions, same times."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.core.model import effects as do
from controller.core.model import facts as f
from controller.core.model.cluster import keyed
from experiments.inputs.scenario import Scenario, demo_scenario
from experiments.inputs.traces import generate
from experiments.worlds.virtual import Overheads, VirtualWorld
from testbed import messages as m
from tests.streamed_world import Disturb, RecordedWorld, on_heap, over_streams

ROUNDING_S, MAX_INCARNATION = 1e-6, 1000
COSTS = Overheads()
NOT_COMPARED = (f.EgressMeasured, m.HeartbeatAck)  # counters are read ten times as often by the live hosts


def scenario_of(seed: int, seconds: float = 25.0, **protocol: Any) -> Scenario:
    """The demo, every host at a distance of its own: no two messages arrive at one moment, so no order is left to chance."""
    demo = demo_scenario(hosts=6, seconds=seconds, seed=seed)
    far = tuple(
        replace(link, delay_s=1e-4 * (number + 1) + 1.7e-6 * number**2) for number, link in enumerate(demo.campus.links)
    )
    return replace(demo, campus=replace(demo.campus, links=far), protocol=replace(demo.protocol, **protocol))


def both(
    scenario: Scenario, folder: Path, disturb: Disturb = lambda world: None, **options: Any
) -> tuple[RecordedWorld, RecordedWorld]:
    trace = generate(scenario)
    return (
        on_heap(scenario, trace, COSTS, disturb, **options),
        over_streams(scenario, trace, COSTS, disturb, folder / "journal.sqlite", **options),
    )


def said(world: RecordedWorld) -> list[tuple[float, Any]]:
    """What the coordinator told agents and wrote down, in order."""
    found: list[tuple[float, Any]] = []
    for at_s, effect in world.said:
        match effect:
            case do.Tell(host, message) if not isinstance(message, NOT_COMPARED):
                found.append((at_s, (host, message)))
            case do.Record(
                f.HostJoined(incarnation=number) as fact
            ):  # over streams it is masked, and nothing else is of it
                shown = number if number > MAX_INCARNATION else keyed(b"", number)
                found.append((at_s, msgspec.structs.replace(fact, incarnation=shown)))
            case do.Record(fact) if not isinstance(fact, NOT_COMPARED):
                found.append((at_s, fact))
            case do.Disconnect():
                found.append((at_s, effect))
    return found


def assert_same(expected: list[tuple[float, Any]], got: list[tuple[float, Any]]) -> None:
    for number, (one, other) in enumerate(zip(expected, got, strict=False)):
        assert one[0] == pytest.approx(other[0], abs=ROUNDING_S), f"decision {number}: {one} and {other}"
        assert _close(one[1], other[1]), f"decision {number}: {one} and {other}"
    assert len(expected) == len(got)


def _close(one: Any, other: Any) -> bool:
    """Equal, but for the last digits of floats."""
    return type(one) is type(other) and _near(msgspec.to_builtins(one), msgspec.to_builtins(other))


def _near(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=ROUNDING_S) or one == other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_near(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_near, one, other))
    return bool(one == other)


def kinds(world: RecordedWorld) -> set[type]:
    return {type(fact) for _, fact in world.facts}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_heap_and_live_hosts_decide_the_same_in_the_same_order(seed: int, tmp_path: Path) -> None:
    heap, live = both(scenario_of(seed, seconds=40.0), tmp_path)
    assert_same(said(heap), said(live))
    assert live.facts == [(at_s, effect.fact) for at_s, effect in live.said if isinstance(effect, do.Record)]
    needed = {f.JobRedirected, f.JobStopped, f.MigrationFinished, f.WorkLost, f.Granted, f.CheckpointPlanned}
    assert needed <= kinds(live)


@pytest.mark.parametrize("system", ["slurm-pr", "static", "random-dst", "no-tc-bpf", "reclaimnet-as-printed"])
def test_they_agree_whatever_the_policy_is(system: str, tmp_path: Path) -> None:
    heap, live = both(scenario_of(5), tmp_path, system=system)
    assert_same(said(heap), said(live))


@pytest.mark.parametrize("seed", [1, 2])
def test_they_agree_on_connections_that_break_and_agents_that_die(seed: int, tmp_path: Path) -> None:
    def disturb(world: VirtualWorld) -> None:
        first, second, third, fourth, *_ = world.machines
        world.at(6.1, lambda: world.cut(first, 0.01, 0.02))
        world.at(9.3, lambda: world.kill(second, again_after_s=2.0))
        world.at(13.3, lambda: world.cut(third, 0.5, 0.01))
        world.at(17.3, lambda: world.cut(fourth, 0.01, 0.5))

    heap, live = both(scenario_of(seed), tmp_path, disturb)
    assert_same(said(heap), said(live))
    lost = [fact.reason for _, fact in live.facts if isinstance(fact, f.HostLost)]
    assert lost.count("connection lost") == 3
    assert lost.count("replaced by a newer connection") == 1


@pytest.mark.parametrize("down_s", [0.05, 1.6])
def test_they_agree_on_a_coordinator_that_dies_and_begins_again_from_its_journal(down_s: float, tmp_path: Path) -> None:
    heap, live = both(scenario_of(3), tmp_path, lambda world: world.restart_coordinator(7.77, down_s))
    assert_same(said(heap), said(live))
    assert f.CoordinatorRestarted in kinds(live)
    again = {fact.host for at_s, fact in live.facts if at_s > 7.77 and isinstance(fact, f.HostJoined)}
    assert again == set(live.machines)
