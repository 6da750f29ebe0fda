"""A window as data: who runs where, and everything that can be chosen. `menu` writes it, `program` and `greedy` choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

from experiments.worlds.oracle.availability import Stay
from experiments.worlds.oracle.link_budgets import Shares
from topologies.spec import DirectedLink


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job as the oracle sees it: on `stay` since `since_s`, or (None) arriving at `since_s`; over at `finish_s` if all goes
    well."""

    name: str
    payload_bytes: float
    memory_bytes: float
    min_capability: float
    step_s: float
    dirty_fraction: float
    since_s: float
    finish_s: float
    stay: Stay | None = None
    done_s: float = 0.0  # work in it when the window begins, all of which an end without a checkpoint loses


@dataclass(frozen=True, slots=True)
class Reservation:
    """A rate on some links for a while."""

    links: tuple[DirectedLink, ...]
    from_s: float
    until_s: float
    rate_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Tenancy:
    """A GPU of a stay is taken from `from_s` until `until_s`."""

    stay: Stay
    from_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class Entry:
    """A new job's first host; None: it waits in the queue, and the window plans nothing more for it."""

    job: str
    stay: Stay | None
    cost_s: float
    tenancy: Tenancy | None = None


@dataclass(frozen=True, slots=True)
class Handover:
    """One way for a job to leave a stay that ends under it.

    `to`: where it goes on; None: into the queue. `holder`: who gets its checkpoints, which begin at `begins_s`; None:
    nobody, it loses everything. `migrates`: P2 and P3 move it within the notice. `loss_s`: work that is computed again.
    `cost_s`: that, and what little its downtime and the stay after the window weigh.
    """

    job: str
    stay: Stay
    to: Stay | None
    holder: str | None
    migrates: bool
    begins_s: tuple[float, ...]
    loss_s: float
    cost_s: float
    reservations: tuple[Reservation, ...] = ()
    tenancy: Tenancy | None = None


Choice = Entry | Handover


@dataclass(frozen=True)
class WindowProblem:
    """All choices of a window. `nodes`: the stays of each job that end in the window before it does: each needs a handover
    if the job gets there. `gpus`: of hosts; `shares`: of links. `tenancies`, `reservations`: not to be changed.
    """

    runners: tuple[RunningJob, ...]
    entries: tuple[Entry, ...]
    handovers: tuple[Handover, ...]
    gpus: Mapping[str, int]
    shares: Shares
    tenancies: tuple[Tenancy, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    horizon_s: float = inf
    nodes: frozenset[tuple[str, Stay]] = field(default_factory=frozenset)

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """One variable each, in this order."""
        return (*self.entries, *self.handovers)
