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
    horizon_s: float = inf
    nodes: frozenset[tuple[str, Stay]] = field(default_factory=frozenset)
