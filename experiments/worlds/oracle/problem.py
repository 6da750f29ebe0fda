"""A window as data: where jobs run, and everything that can be chosen; and the plan of what was chosen.

`choices` writes a problem, `program` chooses, and the columns of a policy look the plan up while the virtual world plays it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from experiments.worlds.oracle.future import ClassBudgets, Future, Stay
from testbed.messages import JobSpec
from topologies.spec import DirectedLink

Node = tuple[str, Stay]  # a job, and a stay at which it is


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job on `stay` since `since_s`, over at `finish_s` if nothing interrupts it."""

    spec: JobSpec
    since_s: float
    finish_s: float
    stay: Stay
    done_s: float = 0.0  # work in it when the window begins, all of which an end without a checkpoint loses

    @property
    def name(self) -> str:
        """The job's name."""
        return self.spec.name


@dataclass(frozen=True, slots=True)
class Booking:
    """A rate on some links for a while; `migrates`: of a migration, else of checkpoints."""

    links: tuple[DirectedLink, ...]
    from_s: float
    until_s: float
    rate_bytes_per_s: float
    migrates: bool = False

    def holds_at(self, at_s: float) -> bool:
        """Return True if it has its rate at that moment."""
        return self.from_s <= at_s < self.until_s


@dataclass(frozen=True, slots=True)
class Handover:
    """A way for a job to leave a stay that ends under it."""

    job: str
    stay: Stay  # where it is
    to: Stay | None  # where it goes on; None: into the queue
    holder: str | None  # the host that gets its checkpoints; None: there are none, it loses everything
    migrates: bool  # P2 and P3 move it within the notice
    begins_s: tuple[float, ...]  # of its checkpoints
    loss_s: float  # work that is computed again
    cost_s: float  # that, and what little its downtime weighs
    bookings: tuple[Booking, ...] = ()

    @property
    def leaves_s(self) -> float:
        """The moment from which it has a GPU of the next stay."""
        return self.stay.notice_s if self.migrates else self.stay.until_s

    def rate_at(self, at_s: float) -> float:
        """Return the rate of its transfer at that moment; 0 while its links are for others."""
        return next((each.rate_bytes_per_s for each in self.bookings if each.holds_at(at_s)), 0.0)

    @property
    def firm_s(self) -> float:
        """The moment from which it is not changed any more: its notice, or its first checkpoint."""
        return self.stay.notice_s if self.migrates else min(self.begins_s, default=self.stay.until_s)


@dataclass(frozen=True)
class WindowProblem:
    """Choices of a window.

    `gpus`: of hosts; `budgets`: of links. `bookings`: not to be changed.
    """

    runners: tuple[RunningJob, ...]
    handovers: tuple[Handover, ...]
    gpus: Mapping[str, int]
    budgets: ClassBudgets
    bookings: tuple[Booking, ...] = ()

    @property
    def nodes(self) -> set[Node]:
        """The stays of each job that end in the window before it does: each needs a handover if the job gets there."""
        return {(way.job, way.stay) for way in self.handovers}


@dataclass(frozen=True, slots=True)
class Window:
    """Answer for a window: chosen handovers, objective, and the best bound known.

    `status`: "optimal"; "time limit" (the best that was found by then); "nothing" (no plan was found by then). `gap`:
    (objective - bound) / objective, 0 where there is nothing to lose; no plan can be better by more. `from_s`: the
    second of the run as played at which it was planned. `amends`: not a whole window, but jobs that came to be
    elsewhere than planned, for the rest of one.
    """

    chosen: tuple[Handover, ...]
    objective_s: float = 0.0
    bound_s: float = 0.0
    gap: float = 0.0
    status: str = "optimal"
    from_s: float = 0.0
    amends: bool = False


@dataclass
class SchedulePlan:
    """The plan in force. `where`: the stay that each job was last given to."""

    future: Future
    ways: dict[Node, Handover] = field(default_factory=dict)  # how a job leaves a stay
    on_way: set[Node] = field(default_factory=set)  # stays that the plan knows a job to come to
    where: dict[str, Stay] = field(default_factory=dict)
    granted_bytes_per_s: dict[str, float] = field(default_factory=dict)  # to a job's checkpoints, last

    def enter(self, runners: Iterable[RunningJob], chosen: Iterable[Handover]) -> None:
        """Put these ways in force, in place of all others."""
        self.ways = {(way.job, way.stay): way for way in chosen}
        self.on_way = {(runner.name, runner.stay) for runner in runners}
        self.on_way.update((way.job, way.to) for way in self.ways.values() if way.to is not None)

    def way_of(self, job: str) -> Handover | None:
        """Return the way by which it leaves the stay that it was last given to; None: no plan, or it never has to."""
        stay = self.where.get(job)
        return None if stay is None else self.ways.get((job, stay))
