"""A plan without search: in the order of time, each job takes the cheapest choice that is still free.

It is what is left when a time limit strikes before a solver has found anything, and what its answer is compared with.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from experiments.worlds.oracle.availability import Stay
from experiments.worlds.oracle.link_budgets import LinkBudgets
from experiments.worlds.oracle.problem import (
    Booking,
    Choice,
    Tenancy,
    WindowProblem,
)
from topologies.spec import DirectedLink

NEARLY = 1e-9


def greedy(problem: WindowProblem) -> tuple[Choice, ...]:
    """A feasible plan: the queue, and losing everything, are always possible."""
    books, where = Books.of(problem), {r.name: r.stay for r in problem.runners if r.stay is not None}
    since_s = {runner.name: runner.since_s for runner in problem.runners}
    # (when, host, job, the stay that ends under it): begins of new jobs, ends of stays
    turns: dict[tuple[float, str, str, Stay | None], list[Choice]] = defaultdict(list)
    for entry in problem.entries:
        turns[since_s[entry.job], "", entry.job, None].append(entry)
    for way in problem.handovers:
        turns[way.stay.until_s, way.stay.host, way.job, way.stay].append(way)
    chosen: list[Choice] = []
    for (_, _, job, stay), choices in sorted(turns.items(), key=lambda turn: turn[0][:3]):
        if where.get(job) != stay:
            continue
        best = next(c for c in sorted(choices, key=lambda choice: choice.cost_s) if books.has_room(c))
        books.enter(best)
        chosen.append(best)
        where.pop(job, None)
        if best.to is not None:
            where[job] = best.to
    return tuple(chosen)


@dataclass
class Books:
    """What is taken of links and GPUs."""

    problem: WindowProblem
    on_link: dict[DirectedLink, list[Booking]] = field(default_factory=lambda: defaultdict(list))
    on_stay: dict[Stay, list[Tenancy]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, problem: WindowProblem) -> Books:
        """Begin with all that cannot be changed."""
        books = cls(problem)
        for booking in problem.bookings:
            books._book(booking)
        for tenancy in problem.tenancies:
            books.on_stay[tenancy.stay].append(tenancy)
        for runner in problem.runners:
            if runner.stay is not None:
                until_s = min(runner.finish_s, runner.stay.until_s)
                books.on_stay[runner.stay].append(Tenancy(runner.stay, runner.since_s, until_s))
        return books

    def enter(self, choice: Choice) -> None:
        """Take it."""
        for booking in choice.bookings:
            self._book(booking)
        if choice.tenancy is not None:
            self.on_stay[choice.tenancy.stay].append(choice.tenancy)

    def _book(self, booking: Booking) -> None:
        for link in booking.links:
            self.on_link[link].append(booking)

    def has_room(self, choice: Choice) -> bool:
        """Whether its links and its GPU are free for as long as it needs them."""
        if (gpu := choice.tenancy) is not None:
            held = [t for t in self.on_stay[gpu.stay] if t.from_s < gpu.until_s and gpu.from_s < t.until_s]
            moments = [gpu.from_s, *(t.from_s for t in held if t.from_s > gpu.from_s)]
            most = max(sum(t.from_s <= at_s < t.until_s for t in held) for at_s in moments)
            if most >= self.problem.gpus[gpu.stay.host]:
                return False
        for budgets, of_migrations in self.problem.budgets.constraints():
            mine = [each for each in choice.bookings if each.migrates or not of_migrations]
            if not all(self._fits(budgets, wanted, of_migrations=of_migrations) for wanted in mine):
                return False
        return True

    def _fits(self, budgets: LinkBudgets, wanted: Booking, *, of_migrations: bool) -> bool:
        changes = [wanted.from_s, *budgets.changes_s(wanted.from_s, wanted.until_s)]
        for link in wanted.links:
            beside = [
                r
                for r in self.on_link[link]
                if r.from_s < wanted.until_s
                and wanted.from_s < r.until_s
                and (r.migrates or not of_migrations)
            ]
            for at_s in (*changes, *(r.from_s for r in beside if r.from_s > wanted.from_s)):
                used = sum(r.rate_bytes_per_s for r in beside if r.from_s <= at_s < r.until_s)
                if used + wanted.rate_bytes_per_s > budgets.at(link, at_s) * (1.0 + NEARLY):
                    return False
        return True
