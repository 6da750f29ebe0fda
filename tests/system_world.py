"""A small virtual campus under any of the systems."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from controller.core.settings import DAY_S
from experiments.worlds.virtual import VirtualWorld
from experiments.worlds.virtual.invariants import Invariants
from testbed.messages import JobSpec
from tests.cores_world import COSTS, SETTINGS, a_running_job, small_campus

TIME = SETTINGS.day_s / DAY_S  # the small world's time scale
STEP_S = 0.1


def job(name: str = "a", steps: int = 1000, payload_bytes: int = 2_000_000) -> JobSpec:
    return JobSpec(name, steps, STEP_S, payload_bytes)


class Small(VirtualWorld):
    """A small campus under a system; what agents were told is kept, every invariant is checked."""

    def __init__(
        self, system: str, hosts: int = 6, on_demand: int = 0, *, head_stores: bool = False, **options: Any
    ) -> None:
        settings = replace(SETTINGS, level_start=3.0, policy=system, head_stores=head_stores)
        campus = small_campus(hosts, on_demand)
        super().__init__(campus, settings, 1, costs=COSTS, after_each=Invariants(), **options)
        self.told: list[tuple[str, Any]] = []
        self.env.told = lambda host, message: self.told.append((host, message))
        self.start()
        self.run(0.5)

    def running(self, name: str = "a", until_s: float = 12.0, **more: Any) -> str:
        """Submit a job and let it run; its host."""
        return a_running_job(self, job(name, **more), until_s)

    def of(self, kind: type) -> list[Any]:
        return [fact for _, fact in self.facts if isinstance(fact, kind)]

    def at_s(self, kind: type) -> list[float]:
        return [at_s for at_s, fact in self.facts if isinstance(fact, kind)]

    def messages(self, kind: type) -> list[Any]:
        return [message for _, message in self.told if isinstance(message, kind)]
