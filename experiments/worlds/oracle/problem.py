"""A window as data: where jobs run, and everything that can be chosen. `choices` writes it, `program` chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from experiments.worlds.oracle.availability import Stay
from experiments.worlds.oracle.link_budgets import ClassBudgets
from topologies.spec import DirectedLink


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job on `stay` since `since_s`, over at `finish_s` if nothing interrupts it."""

    name: str
    payload_bytes: float
    memory_bytes: float
    min_capability: float
    step_s: float
    dirty_fraction: float
    since_s: float
    finish_s: float
    stay: Stay
    done_s: float = 0.0  # work in it when the window begins, all of which an end without a checkpoint loses


@dataclass(frozen=True, slots=True)
class Booking:
    """A rate on some links for a while; `migrates`: of a migration, else of checkpoints."""

    links: tuple[DirectedLink, ...]
    from_s: float
    until_s: float
    rate_bytes_per_s: float
    migrates: bool = False


@dataclass(frozen=True, slots=True)
class Tenancy:
    """A GPU of a stay that is taken from `from_s` until `until_s`."""

    stay: Stay
    from_s: float
    until_s: float


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
    cost_s: float  # that, and what little its downtime and the stay after the window weigh
    bookings: tuple[Booking, ...] = ()
    tenancy: Tenancy | None = None


@dataclass(frozen=True)
class WindowProblem:
    """Choices of a window. `nodes`: the stays of each job that end in the window before it does: each needs a handover
    if the job gets there. `gpus`: of hosts; `budgets`: of links. `bookings`: not to be changed.
    """

    runners: tuple[RunningJob, ...]
    handovers: tuple[Handover, ...]
    gpus: Mapping[str, int]
    budgets: ClassBudgets
    bookings: tuple[Booking, ...] = ()
    begin_s: float = 0.0
    horizon_s: float = inf
    nodes: frozenset[tuple[str, Stay]] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Window:
    """The answer for a window: chosen handovers, the objective and the best bound known, seconds of work, and the program's size.

    `status`: "optimal"; "time limit" (the best that was found by then); "nothing" (no plan was found by then). `gap`:
    (objective - bound) / objective, 0 where there is nothing to lose; no plan can be better by more. `amends`: not a whole
    window, but jobs that came to be elsewhere than planned, for the rest of one. Times in seconds of the run as played;
    `solve_s` is the solver's own.
    """

    from_s: float
    until_s: float
    jobs: int
    chosen: tuple[Handover, ...]
    objective_s: float
    bound_s: float
    gap: float
    status: str
    variables: int
    constraints: int
    solve_s: float
    amends: bool = False


@dataclass(frozen=True, slots=True)
class WindowEnd:
    """An attempt that its owner ended. `planned_loss_s`: its loss by the plan; None: no plan foresaw it."""

    job: str
    at_s: float
    planned_loss_s: float | None
