"""Controllers in the coordinator: chosen by name, told what happens, working between decisions and never in them."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from controller.core.coordinator import Coordinator
from controller.core.model import events as ev
from controller.core.model import facts as f
from controller.core.queueing.controllers.age import Age
from controller.core.queueing.controllers.algorithm1 import Algorithm1
from controller.core.queueing.controllers.fixed import Fixed
from controller.core.queueing.controllers.replay import Replay
from experiments.inputs.scenario import loads
from testbed import messages as m
from tests.cores_world import PROTOCOL, QUEUE, CoresWorld, calm_and_finish, small_campus

TEXT = """
name = "x"
duration = "10 min"
campus = "example:lab"
[queue]
learner = "{}"
"""


class Busy(Fixed):
    """Has so many slices to do, and counts in which event they were done."""

    def __init__(self, slices: int) -> None:
        super().__init__(3.0)
        self.slices, self.done = slices, 0

    def work(self) -> bool:
        """One less."""
        if self.slices == 0:
            return False
        self.slices, self.done = self.slices - 1, self.done + 1
        self.level += 1.0
        return True


def a_core(busy: Busy) -> Coordinator:
    core = Coordinator(small_campus(2, 1), PROTOCOL, QUEUE, lambda: 0.0)
    core.cluster.queue.controller = busy
    return core


def test_slices_are_done_one_an_event_of_their_own_until_nothing_is_left() -> None:
    busy = Busy(3)
    core = a_core(busy)
    assert core.next_deadline_s() == inf
    core.handle(ev.JobSubmitted(m.JobSpec("a", 10, 0.1, 1), 0.0, 7), 1.0)
    assert (busy.done, core.next_deadline_s()) == (0, 1.0)  # submitting decided, and only that
    seen = []
    while core.next_deadline_s() <= 1.0:
        core.handle(ev.Woke(), 1.0)
        seen.append(busy.done)
    assert seen == [1, 2, 3, 3]
    assert core.next_deadline_s() == inf


def test_a_job_that_must_leave_is_sent_off_before_anything_is_learned() -> None:
    busy = Busy(5)
    busy.longest_wait_s = 2.0
    core = a_core(busy)
    core.handle(ev.JobSubmitted(m.JobSpec("a", 10, 0.1, 1), 0.0, 7), 1.0)
    effects = core.handle(ev.Woke(), 3.0)
    assert busy.done == 0
    assert effects[0].fact == f.JobRedirected("a", 0, 3.0, 2.0)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fixed", Fixed),
        ("algorithm1", Algorithm1),
        ("replay", Replay),
        ("age", Age),
    ],
)
def test_a_scenario_names_who_learns(name: str, kind: type[Fixed]) -> None:
    scenario = loads(TEXT.format(name))
    core = Coordinator(scenario.campus, scenario.played().protocol, scenario.played().queue, lambda: 0.0)
    assert type(core.cluster.queue.controller) is kind


def test_without_on_demand_hosts_everybody_waits_whoever_learns() -> None:
    core = Coordinator(small_campus(2, 0), PROTOCOL, replace(QUEUE, learner="age"), lambda: 0.0)
    assert type(core.cluster.queue.controller) is Fixed


@pytest.mark.parametrize("name", ["replay", "age"])
@pytest.mark.parametrize("ttl_s", [0.0, 5.0, inf])
def test_a_campus_keeps_its_promises_while_a_controller_learns(name: str, ttl_s: float) -> None:
    queue = replace(QUEUE, learner=name, offer_ttl_s=ttl_s, level_start=1.0, level_window=5)
    world = CoresWorld(small_campus(3, 1), PROTOCOL, queue)
    world.start()
    world.run(0.5)
    for number in range(60):
        world.submit(m.JobSpec(f"j{number}", 20, 0.1, 2_000_000), draw=(0.37 * number) % 1.0)
        world.run(1.0 + number)
    assert world.coordinator.cluster.queue.statistics.arrivals == 60
    calm_and_finish(world)
    assert any(isinstance(fact, f.LevelLearned) for _, fact in world.facts)
