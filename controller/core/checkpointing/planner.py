"""P1, exactly: rates and intervals of all jobs at once, at the least expected loss over the network.

Where paper A allocates by cube roots and then clips intervals (Theorem 1, Lemma 2, eq. 9), this minimises what all jobs
together lose, lambda (D/2 + C/b) + p/D each, over all b and D at once: loss budgets bound the rates from below
(`loss_budgets` says which, when not all can be kept), write caps from above, every link has its budget, and the time
that a write takes to protect is part of the cost (`cost`, `dual_newton`).

p is what a checkpoint stops its job for. In the paper that is the write, C/b; on one link without loss budgets and with
writes that are short against the time between reclaims the answer is then Theorem 1. Where jobs go on while they are sent it
is the snapshot's time, much less: they should checkpoint more often, and the best interval depends on no rate
(`plan_behind`).

**How much of an interval sending may take**, beta of eq. (9), is .2 in the paper, whose job stands still meanwhile. Where it
goes on, its pauses are in the sum above, and research and migrations have their shares of each link before P1 has any: nothing is
left for beta to protect. What remains is that one checkpoint is there before the next is begun, D >= writing + C/b:
SENDING_SHARE. With .2, intervals of large payloads were several times as long as the sum, or the loss budget, asked for.

`plan_columns` works on arrays, for thousands of jobs a tick; `plan_exact` is the same behind `intervals.Planner`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.core.checkpointing.cost import curves
from controller.core.checkpointing.dual_newton import (
    NO_GUESS,
    SETTLED,
    RateAllocation,
    cheapest,
)
from controller.core.checkpointing.intervals import (
    BETA,
    CheckpointJob,
    CheckpointSchedule,
    constrained_interval,
)
from controller.core.checkpointing.loss_budgets import (
    Keep,
    kept,
    uncontested,
)
from controller.numerics.arrays import Floats, Mask, Numbers
from controller.numerics.jit import compiled
from topologies.spec import DirectedLink

# of an interval: the rest is for what a transfer takes beside its bytes at the rate of its grant. It is written before the first
# byte leaves (5 % of the sending, at 1.5 GB/s and 80 MB/s), and TCP does not quite fill a grant (3 %, `reservation.GOODPUT`)
SENDING_SHARE = 0.9
ROUNDING = 1e-9  # relative: a rate that is less than a budget needs by so little keeps it
CLOSE = 1e-3  # of the expected loss: what a live plan may cost more than the best one; no host's hazard is known to 1 %


@dataclass(frozen=True, slots=True)
class JobColumns:
    """`CheckpointJob`s as arrays of one length n."""

    payload_bytes: Floats
    hazard_per_s: Floats
    write_cap_bytes_per_s: Floats
    loss_budget_s: Floats
    routes: Numbers  # (n, longest route): indices of links, padded with their number
    rank: Numbers  # orders equals (by name, say)


@dataclass(frozen=True, slots=True)
class PlanColumns:
    """The answer, a row a job."""

    rates_bytes_per_s: Floats
    intervals_s: Floats  # infinite: never
    budget_kept: Mask  # whether its loss budget can be kept
    allocation: RateAllocation  # with its certificate


def plan_columns(
    jobs: JobColumns,
    capacity_bytes_per_s: Floats,
    beta: float = BETA,
    guess: Floats | None = None,
    settled: float = SETTLED,
    keep: Keep = kept,
    pauses_s: Floats | float = math.inf,
) -> PlanColumns:
    """Rates and intervals of least joint cost; `capacity_bytes_per_s` is each link's checkpoint budget.

    `guess`: multipliers of an earlier plan, by link; `settled`: how near to the least (`dual_newton.cheapest`);
    `keep`: the rule for budgets that do not fit (`loss_budgets`); `pauses_s`: p, of each or of all, infinite where the write
    stops the jobs.
    """
    payload, budget, caps = jobs.payload_bytes, jobs.loss_budget_s, jobs.write_cap_bytes_per_s
    needed, possible = _slices(payload, budget, caps, float(beta))
    keeps = keep(np.where(possible, needed, 0.0), jobs.routes, capacity_bytes_per_s, jobs.rank)
    rates, multipliers, gap, steps, intervals_s, budget_kept = _planned(
        payload,
        jobs.hazard_per_s,
        budget,
        caps,
        jobs.routes,
        capacity_bytes_per_s,
        float(beta),
        np.full(len(payload), pauses_s) if isinstance(pauses_s, float) else pauses_s,
        needed,
        keeps & possible,
        NO_GUESS if guess is None else guess,
        settled,
    )
    return PlanColumns(rates, intervals_s, budget_kept, RateAllocation(rates, multipliers, gap, steps))


@dataclass(frozen=True, slots=True)
class ExactPlanner:
    """Callable like `intervals.plan`. `columns()` takes arrays and stops at a duality gap of CLOSE.

    `keep`: the rule for loss budgets that do not fit together. `behind`: jobs go on while they are sent; only then
    the time of a snapshot counts. `alike`: as if all had the means of hazards and pauses, and the tightest budget: one interval
    for all, where the network allows it.
    """

    keep: Keep = kept
    behind: bool = False
    alike: bool = False

    def pauses_s(self, snapshots_s: Floats | float) -> Floats:
        """p, for which a checkpoint stops each job whose snapshot takes so long; infinite: for the write."""
        return np.asarray(snapshots_s) if self.behind else np.full(np.shape(snapshots_s), np.inf)

    def columns(
        self,
        jobs: JobColumns,
        capacity_bytes_per_s: Floats,
        beta: float = BETA,
        start: Floats | None = None,
        pauses_s: Floats | float = math.inf,
    ) -> PlanColumns:
        """`plan_columns` of jobs and pauses as `seen` has them."""
        return plan_columns(jobs, capacity_bytes_per_s, beta, start, CLOSE, self.keep, pauses_s)

    def seen(self, jobs: JobColumns, pauses_s: Floats) -> tuple[JobColumns, Floats]:
        """The jobs, and what a checkpoint stops each for, as this planner takes them to be."""
        if not self.alike or not len(jobs.payload_bytes):
            return jobs, pauses_s
        same = np.ones(len(jobs.payload_bytes))
        hazards, budgets = same * jobs.hazard_per_s.mean(), same * jobs.loss_budget_s.min()
        return replace(jobs, hazard_per_s=hazards, loss_budget_s=budgets), same * pauses_s.mean()

    def __call__(
        self,
        jobs: Sequence[CheckpointJob],
        capacity: Mapping[DirectedLink, float],
        beta: float = BETA,
        snapshot_s: Callable[[float], float] = lambda payload_bytes: 0.0,
    ) -> dict[str, CheckpointSchedule]:
        """`intervals.plan` at the least joint cost; `snapshot_s` of a payload is what writing it locally takes.

        ValueError: a link without a capacity, a key twice.
        """
        ordered = sorted(jobs, key=lambda job: job.key)  # sums, and so last digits, are of one order
        links = list(dict.fromkeys(link for job in ordered for link in job.links))
        budgets = np.array([capacity.get(link, np.nan) for link in links], dtype=np.float64)
        for link, budget in zip(links, budgets.tolist(), strict=True):
            if not 0.0 <= budget < np.inf:
                raise ValueError(f"link {link}: capacity {capacity.get(link)}: a finite rate of 0 or more")
        if len({job.key for job in ordered}) != len(ordered):
            raise ValueError("checkpoint jobs: a key appears twice; every job has one of its own")
        number = {link: place for place, link in enumerate(links)}
        routes = padded([[number[link] for link in job.links] for job in ordered], len(links))
        numbers = np.array(
            [(j.payload_bytes, j.hazard_per_s, j.write_cap_bytes_per_s, j.loss_budget_s) for j in ordered],
            dtype=np.float64,
        ).reshape(len(ordered), 4)
        payload, hazard, cap, budget = numbers.T.copy()
        columns = JobColumns(payload, hazard, cap, budget, routes, np.arange(len(ordered)))
        snapshots_s = np.array([snapshot_s(job.payload_bytes) for job in ordered])
        columns, pauses_s = self.seen(columns, self.pauses_s(snapshots_s))
        planned = plan_columns(columns, budgets, beta, keep=self.keep, pauses_s=pauses_s)
        seen = columns.hazard_per_s, payload, planned.rates_bytes_per_s, columns.loss_budget_s, pauses_s
        plans = {}
        for job, (hazard_per_s, size_bytes, rate, budget_s, pause_s) in zip(
            ordered, np.array(np.broadcast_arrays(*seen)).T.tolist(), strict=True
        ):
            interval = constrained_interval(hazard_per_s, size_bytes, rate, budget_s, beta, pause_s)
            plans[job.key] = CheckpointSchedule(rate, interval)
        return {job.key: plans[job.key] for job in jobs}


plan_exact = ExactPlanner()
plan_least_loss: ExactPlanner = ExactPlanner(uncontested)
plan_behind: ExactPlanner = ExactPlanner(uncontested, behind=True)
plan_alike: ExactPlanner = ExactPlanner(uncontested, behind=True, alike=True)


def padded(routes: Sequence[Sequence[int]], nowhere: int) -> Numbers:
    """Numbers of links, a row a route, `nowhere` behind the shorter ones."""
    width = max(map(len, routes), default=0)
    rows = [(*route, *(nowhere,) * (width - len(route))) for route in routes]
    return np.array(rows, dtype=np.intp).reshape(len(routes), width)


@compiled
def _slices(payload_bytes: Floats, loss_budget_s: Floats, caps: Floats, beta: float) -> tuple[Floats, Mask]:
    """(the slice that each loss budget takes, 0 without one and infinite where no loss is allowed; whether that is possible)."""
    needed = payload_bytes / (2.0 * beta * loss_budget_s)
    return needed, (needed <= caps) & np.isfinite(needed)


@compiled
def _planned(
    payload_bytes: Floats,
    hazard_per_s: Floats,
    loss_budget_s: Floats,
    caps: Floats,
    routes: Numbers,
    capacity: Floats,
    beta: float,
    pauses_s: Floats,
    needed: Floats,
    keeps: Mask,
    guess: Floats,
    settled: float,
) -> tuple[Floats, Floats, float, int, Floats, Mask]:
    """(what a `RateAllocation` holds, intervals, which budgets are kept)."""
    lower = np.where(keeps, needed, 0.0)
    costs = curves(payload_bytes, hazard_per_s, loss_budget_s, beta, ~keeps, pauses_s)
    rates, multipliers, gap, steps = cheapest(costs, lower, caps, routes, capacity, guess, settled)
    # eq. (9): the best interval under the cap of the loss budget, above the floor of the network
    intervals_s = np.empty(len(rates))
    for job in range(len(rates)):
        write_s, hazard = payload_bytes[job] / rates[job], hazard_per_s[job]
        stopped_s = write_s if pauses_s[job] == np.inf else pauses_s[job]
        best_s = math.sqrt(2.0 * stopped_s / hazard) if hazard > 0.0 else np.inf
        intervals_s[job] = max(min(best_s, 2.0 * loss_budget_s[job]), write_s / beta)
    return rates, multipliers, gap, steps, intervals_s, rates >= needed * (1.0 - ROUNDING)
