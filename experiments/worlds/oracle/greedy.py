"""A plan without search: in the order of time, whoever has to decide takes the cheapest that is still free.

It is what is left when a time limit strikes before a solver has found anything, and what its answer is compared with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from experiments.worlds.oracle.availability import Stay
from experiments.worlds.oracle.problem import (
    Choice,
    Entry,
    Handover,
    Reservation,
    Tenancy,
    WindowProblem,
)
from topologies.spec import DirectedLink

NEARLY = 1e-9


def greedy(problem: WindowProblem) -> tuple[Choice, ...]:
    """A feasible plan: the queue, and losing everything, are always possible."""
    books, where = Books.of(problem), {r.name: r.stay for r in problem.runners if r.stay is not None}
    chosen: list[Choice] = []
    for _, _, job, turn in sorted(_turns(problem), key=lambda turn: turn[:3]):
        stay = turn[0].stay if isinstance(turn[0], Handover) else None
        if where.get(job) != stay:
            continue
        best = next(c for c in sorted(turn, key=lambda choice: choice.cost_s) if books.has_room(c))
        books.enter(best)
        chosen.append(best)
        to = best.stay if isinstance(best, Entry) else best.to
        where.pop(job, None)
        if to is not None:
            where[job] = to
    return tuple(chosen)


def _turns(problem: WindowProblem) -> Iterable[tuple[float, str, str, list[Choice]]]:
    """(when, host, job, its choices): begins of new jobs, ends of stays under a job."""
    entries: dict[str, list[Choice]] = defaultdict(list)
    for entry in problem.entries:
        entries[entry.job].append(entry)
    ways: dict[tuple[str, Stay], list[Choice]] = defaultdict(list)
    for handover in problem.handovers:
        ways[handover.job, handover.stay].append(handover)
    since = {runner.name: runner.since_s for runner in problem.runners}
    for job, choices in entries.items():
        yield since[job], "", job, choices
    for (job, stay), choices in ways.items():
        yield stay.until_s, stay.host, job, choices


@dataclass
class Books:
    """What is taken of links and GPUs."""

    problem: WindowProblem
    on_link: dict[DirectedLink, list[Reservation]] = field(default_factory=lambda: defaultdict(list))
    on_stay: dict[Stay, list[Tenancy]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, problem: WindowProblem) -> Books:
        """With all that cannot be changed."""
        books = cls(problem)
        for reservation in problem.reservations:
            books._reserve(reservation)
        for tenancy in problem.tenancies:
            books.on_stay[tenancy.stay].append(tenancy)
        for runner in problem.runners:
            if runner.stay is not None:
                until_s = min(runner.finish_s, runner.stay.until_s)
                books.on_stay[runner.stay].append(Tenancy(runner.stay, runner.since_s, until_s))
        return books

    def enter(self, choice: Choice) -> None:
        """It is taken."""
        if isinstance(choice, Handover):
            for reservation in choice.reservations:
                self._reserve(reservation)
        if choice.tenancy is not None:
            self.on_stay[choice.tenancy.stay].append(choice.tenancy)

    def _reserve(self, reservation: Reservation) -> None:
        for link in reservation.links:
            self.on_link[link].append(reservation)

    def has_room(self, choice: Choice) -> bool:
        """Whether its links and its GPU are free for as long as it needs them."""
        if choice.tenancy is not None and not self._has_gpu(choice.tenancy):
            return False
        taken = choice.reservations if isinstance(choice, Handover) else ()
        return all(self._carries(link, each) for each in taken for link in each.links)

    def _has_gpu(self, wanted: Tenancy) -> bool:
        there = [
            t for t in self.on_stay[wanted.stay] if t.from_s < wanted.until_s and wanted.from_s < t.until_s
        ]
        moments = [wanted.from_s, *(t.from_s for t in there if t.from_s > wanted.from_s)]
        most = max(sum(t.from_s <= at_s < t.until_s for t in there) for at_s in moments)
        return most < self.problem.gpus[wanted.stay.host]

    def _carries(self, link: DirectedLink, wanted: Reservation) -> bool:
        beside = [r for r in self.on_link[link] if r.from_s < wanted.until_s and wanted.from_s < r.until_s]
        changes = self.problem.shares.changes_s(wanted.from_s, wanted.until_s)
        moments = [wanted.from_s, *changes, *(r.from_s for r in beside if r.from_s > wanted.from_s)]
        return all(self._fits(link, wanted, beside, at_s) for at_s in moments)

    def _fits(
        self, link: DirectedLink, wanted: Reservation, beside: Iterable[Reservation], at_s: float
    ) -> bool:
        there = sum(r.rate_bytes_per_s for r in beside if r.from_s <= at_s < r.until_s)
        share = self.problem.shares.at(link, at_s)
        return there + wanted.rate_bytes_per_s <= share * (1.0 + NEARLY)
