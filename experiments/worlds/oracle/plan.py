"""The plan that is in force, as the columns of a policy look it up while the virtual world plays it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from experiments.worlds.oracle.availability import Future, Stay
from experiments.worlds.oracle.problem import Handover, RunningJob


@dataclass
class Plan:
    """The plan in force, by job."""

    future: Future
    ways: dict[tuple[str, Stay], Handover] = field(default_factory=dict)  # how a job leaves a stay
    on_way: set[tuple[str, Stay]] = field(default_factory=set)  # stays that the plan knows a job to come to
    where: dict[str, Stay] = field(default_factory=dict)  # the stay that a job was last given to
    granted_bytes_per_s: dict[str, float] = field(default_factory=dict)  # of checkpoints on their way

    def clear(self) -> None:
        """Drop the plan."""
        self.ways, self.on_way = {}, set()

    def enter(self, runners: Iterable[RunningJob], chosen: Iterable[Handover]) -> None:
        """Put these ways in force."""
        self.on_way.update((runner.name, runner.stay) for runner in runners)
        for choice in chosen:
            self.ways[choice.job, choice.stay] = choice
            if choice.to is not None:
                self.on_way.add((choice.job, choice.to))

    def way_of(self, job: str) -> Handover | None:
        """Return the way by which it leaves the stay that it was last given to; None: no plan, or it never has to."""
        stay = self.where.get(job)
        return None if stay is None else self.ways.get((job, stay))

    def wanted(self, job: str) -> str | None:
        """Return the host that the plan has for a job that needs one now."""
        way = self.way_of(job)
        return way.to.host if way is not None and way.to is not None else None

    def begun(self, now_s: float) -> list[Handover]:
        """Return ways that are not changed any more: their first checkpoint has begun, or their notice runs."""
        found = []
        for way in self.ways.values():
            from_s = way.stay.notice_s if way.migrates else min(way.begins_s, default=way.stay.until_s)
            if from_s <= now_s < way.stay.until_s:
                found.append(way)
        return found
