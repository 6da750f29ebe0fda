"""Text scenarios and the demo with a coordinator that is killed after every so many events, and begins again from its journal."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from experiments.inputs.scenario import demo_scenario
from experiments.inputs.traces import generate
from experiments.storms.play import StormOutcome, play
from experiments.storms.script import parse
from experiments.storms.setup import StormSetup
from experiments.storms.world import StormWorld
from experiments.worlds.virtual import VirtualRun, VirtualWorld, simulate
from experiments.worlds.virtual.invariants import Invariants

DOWN_S = (
    0.0,
    0.0,
    0.004,
    0.1,
    1.0,
    2.5,
    8.0,
)  # within a lease (2 s in text scenarios, 3 s in the demo) and beyond


@dataclass
class Killer:
    """Kills the coordinator after every `every`-th event of the world, from the `first` one on, at most `most` times.

    Checks everything besides.
    """

    every: int
    first: int
    downs_s: tuple[float, ...] = DOWN_S
    most: int = 100
    kills: int = 0
    checks: Invariants = field(default_factory=Invariants)

    def __post_init__(self) -> None:
        self._rng = random.Random(f"{self.every} {self.first}")
        self._left = self.first

    def __call__(self, world: VirtualWorld) -> None:
        self.checks(world)
        self._left -= 1
        if world.jobs and world.over():
            return  # what is left of jobs then is looked at by somebody who hears it
        if self._left <= 0 and self.kills < self.most and not world.connections.refused:
            self._left, self.kills = self.every, self.kills + 1
            down_s = self._rng.choice(self.downs_s)
            if isinstance(world, StormWorld):
                world.restart(down_s)
            else:
                world.restart_coordinator(down_s=down_s)


def demo(
    killer: Killer, seed: int = 1, *, hosts: int = 12, seconds: float = 75.0, quiet: bool = True
) -> VirtualRun:
    """The demo, until its jobs are over."""
    scenario = demo_scenario(hosts=hosts, seconds=seconds, seed=seed)
    return simulate(
        scenario,
        generate(scenario),
        # a quiet world keeps a journal from here on
        plan=lambda world: world.restart_coordinator(1e9),
        quiet=quiet,
        until_over=True,
        after_each=killer,
    )


def text_scenario(path: Path, killer: Killer) -> StormOutcome:
    """Play a scenario's faults; killing the coordinator changes where jobs are, and when."""

    class KilledWorld(StormWorld):
        def __init__(self, ground: StormSetup, *, tells_story: bool = False) -> None:
            super().__init__(ground, tells_story=tells_story)
            self._after_each = killer

    return play(parse(path.read_text(), path.name), world_of=KilledWorld)
