"""The plan that is in force, as the columns of a policy look it up while the virtual world plays it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from experiments.worlds.oracle.availability import Future, Stay
from experiments.worlds.oracle.problem import (
    Booking,
    Handover,
    RunningJob,
    Tenancy,
)


@dataclass
class Plan:
    """The plan in force, by job."""

    future: Future
    ways: dict[tuple[str, Stay], Handover] = field(default_factory=dict)  # how a job leaves a stay
    on_way: set[tuple[str, Stay]] = field(default_factory=set)  # stays that the plan knows a job to come to
    tenancies: dict[str, list[Tenancy]] = field(default_factory=dict)  # GPUs that the plan takes
    where: dict[str, Stay] = field(default_factory=dict)  # the stay that a job was last given to
    granted_bytes_per_s: dict[str, float] = field(default_factory=dict)  # of checkpoints on their way

    def forget(self, job: str) -> None:
        """Drop its plan, which is no longer in force."""
        self.tenancies.pop(job, None)
        self.ways = {key: way for key, way in self.ways.items() if key[0] != job}
        self.on_way = {key for key in self.on_way if key[0] != job}

    def clear(self) -> None:
        """No plan is in force."""
        self.ways, self.on_way, self.tenancies = {}, set(), {}

    def enter(self, runners: Iterable[RunningJob], chosen: Iterable[Handover]) -> None:
        """Make this what they do from now on."""
        for runner in runners:
            kept = self.tenancies[runner.name] = []
            self.on_way.add((runner.name, runner.stay))
            kept.append(Tenancy(runner.stay, runner.since_s, min(runner.finish_s, runner.stay.until_s)))
        for choice in chosen:
            self.ways[choice.job, choice.stay] = choice
            if choice.to is not None:
                self.on_way.add((choice.job, choice.to))
            if choice.tenancy is not None:
                self.tenancies.setdefault(choice.job, []).append(choice.tenancy)

    def way_of(self, job: str) -> Handover | None:
        """How it leaves the stay that it was last given to; None: no plan, or it never has to."""
        stay = self.where.get(job)
        return None if stay is None else self.ways.get((job, stay))

    def wanted(self, job: str) -> str | None:
        """The host that the plan has for a job that needs one now."""
        way = self.way_of(job)
        return way.to.host if way is not None and way.to is not None else None

    def begun(self, now_s: float) -> list[Handover]:
        """Ways whose first checkpoint has begun, or whose notice runs: they are not changed any more."""
        found = []
        for way in self.ways.values():
            from_s = way.stay.notice_s if way.migrates else min(way.begins_s, default=way.stay.until_s)
            if from_s <= now_s < way.stay.until_s:
                found.append(way)
        return found

    def taken(self, now_s: float) -> tuple[list[Tenancy], list[Booking]]:
        """GPUs and links that the plan takes; of migrations whose notice runs P3 says when they travel."""
        gpus = [tenancy for kept in self.tenancies.values() for tenancy in kept]
        ways = [way for way in self.ways.values() if not way.migrates or now_s < way.stay.notice_s]
        return gpus, [taken for way in ways for taken in way.bookings]
