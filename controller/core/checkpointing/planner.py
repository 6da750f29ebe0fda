"""P1, exactly: rates and intervals of all jobs at once, at the least expected loss over the network.

Paper A allocates by cube roots and then clips intervals (Theorem 1, Lemma 2, eq. 9). This minimises what all jobs together lose,
lambda (D/2 + C/b) + p/D each, over all rates b and intervals D at once. Loss budgets bound the rates from below, every link
has its capacity, and the time that a write takes to protect is part of the cost (`cost`, `dual_newton`).

p is the time for which a snapshot stops its job: jobs go on while a checkpoint is sent. The best interval, sqrt(2 p/lambda),
therefore depends on no rate, unless the link or the loss budget clips it.

**The share of an interval that sending may take**, beta of eq. (9), is 0.2 in the paper, whose job stands still meanwhile. Here
research and migrations have their shares of each link before P1 has any, so beta has nothing left to protect. It only keeps
one checkpoint from beginning before the last has arrived, D >= writing + C/b: SENDING_SHARE. With 0.2, intervals of large
payloads were several times as long as the best interval or the loss budget.

**Loss budgets.** L_max asks for intervals of at most 2 L_max (eq. 9): a slice of C/(2 beta L_max) on every link to the standby.
Where the slices together are more than a link has, none of the jobs that cross it is bound by its budget. The link's rate then
goes where it saves most, by a curve that is close to the job's own loss (`cost`). On 203 random contested links of two or three
jobs, the work lost was 0.4 % above the least on average and 3 % at most. Keeping as many budgets as possible was tried: it
starves the few jobs that need most, and costs a fifth more work in emergencies on paper A's campus.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.core.checkpointing.cost import curves
from controller.core.checkpointing.dual_newton import NO_GUESS, SETTLED, cheapest
from controller.core.checkpointing.intervals import (
    BETA,
    CheckpointJob,
    CheckpointSchedule,
    constrained_interval,
)
from controller.core.network.links import SLACK
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
    """Jobs to plan for, a row each."""

    payload_bytes: Floats
    hazard_per_s: Floats
    write_cap_bytes_per_s: Floats
    loss_budget_s: Floats
    pauses_s: Floats  # p
    routes: Numbers  # (n, longest route): indices of links, padded with their number


@dataclass(frozen=True, slots=True)
class PlanColumns:
    """Plan of each job, and the certificate that no other is much cheaper."""

    rates_bytes_per_s: Floats
    intervals_s: Floats  # infinite: never
    budget_kept: Mask  # whether its loss budget can be kept
    multipliers: Floats  # of each link: cost a byte/s
    gap: float  # relative, between the cost and a bound that no allocation is below


def plan_columns(
    jobs: JobColumns,
    capacity_bytes_per_s: Floats,
    beta: float = BETA,
    guess: Floats | None = None,
    settled: float = SETTLED,
) -> PlanColumns:
    """Return rates and intervals of least joint cost.

    `capacity_bytes_per_s`: each link's checkpoint budget; `guess`: multipliers of an earlier plan, by link; `settled`: relative
    distance from the least cost at which the search stops.
    """
    return PlanColumns(
        *_planned(
            jobs.payload_bytes,
            jobs.hazard_per_s,
            jobs.write_cap_bytes_per_s,
            jobs.loss_budget_s,
            jobs.pauses_s,
            jobs.routes,
            capacity_bytes_per_s,
            float(beta),
            NO_GUESS if guess is None else guess,
            settled,
        )
    )


@dataclass(frozen=True, slots=True)
class ExactPlanner:
    """Planner of least joint cost, callable like any `intervals.Planner`.

    `alike`: treat all jobs as if they had the means of hazards and pauses, and the tightest budget. All then have one
    interval, where the network allows it.
    """

    alike: bool = False

    def seen(self, jobs: JobColumns) -> JobColumns:
        """Return the jobs as this planner takes them to be."""
        if not self.alike or not len(jobs.payload_bytes):
            return jobs
        same = np.ones(len(jobs.payload_bytes))
        return replace(
            jobs,
            hazard_per_s=same * jobs.hazard_per_s.mean(),
            loss_budget_s=same * jobs.loss_budget_s.min(),
            pauses_s=same * jobs.pauses_s.mean(),
        )

    def __call__(
        self,
        jobs: Sequence[CheckpointJob],
        capacity: Mapping[DirectedLink, float],
        beta: float = BETA,
        snapshot_s: Callable[[float], float] = lambda payload_bytes: 0.0,
    ) -> dict[str, CheckpointSchedule]:
        """Plan jobs by name; `snapshot_s` of a payload is the time for which its snapshot stops the job.

        ValueError: a link without a capacity, a key twice.
        """
        ordered = sorted(jobs, key=lambda job: job.key)  # sums, and so last digits, are of one order
        links = list(dict.fromkeys(link for job in ordered for link in job.links))
        budgets = np.array([capacity.get(link, np.nan) for link in links], dtype=np.float64)
        for link, room in zip(links, budgets.tolist(), strict=True):
            if not 0.0 <= room < np.inf:
                raise ValueError(f"link {link}: capacity {capacity.get(link)}: a finite rate of 0 or more")
        if len({job.key for job in ordered}) != len(ordered):
            raise ValueError("checkpoint jobs: a key appears twice; every job has one of its own")
        number = {link: place for place, link in enumerate(links)}
        numbers = np.array(
            [
                (
                    j.payload_bytes,
                    j.hazard_per_s,
                    j.write_cap_bytes_per_s,
                    j.loss_budget_s,
                    snapshot_s(j.payload_bytes),
                )
                for j in ordered
            ],
            dtype=np.float64,
        ).reshape(len(ordered), 5)
        routes = padded([[number[link] for link in job.links] for job in ordered], len(links))
        payload, hazard, cap, budget, pauses_s = numbers.T.copy()
        columns = self.seen(JobColumns(payload, hazard, cap, budget, pauses_s, routes))
        rates = plan_columns(columns, budgets, beta).rates_bytes_per_s
        seen = columns.hazard_per_s, columns.payload_bytes, rates, columns.loss_budget_s, columns.pauses_s
        plans = {}
        for job, (hazard_per_s, size_bytes, rate, budget_s, pause_s) in zip(
            ordered, np.array(seen).T.tolist(), strict=True
        ):
            interval = constrained_interval(hazard_per_s, size_bytes, rate, budget_s, beta, pause_s)
            plans[job.key] = CheckpointSchedule(rate, interval)
        return {job.key: plans[job.key] for job in jobs}


plan_exact = ExactPlanner()
plan_alike = ExactPlanner(alike=True)


def padded(routes: Sequence[Sequence[int]], nowhere: int) -> Numbers:
    """Return numbers of links, a row a route, with `nowhere` behind the shorter ones."""
    width = max(map(len, routes), default=0)
    rows = [(*route, *(nowhere,) * (width - len(route))) for route in routes]
    return np.array(rows, dtype=np.intp).reshape(len(routes), width)


@compiled
def _planned(
    payload_bytes: Floats,
    hazard_per_s: Floats,
    caps: Floats,
    loss_budget_s: Floats,
    pauses_s: Floats,
    routes: Numbers,
    capacity: Floats,
    beta: float,
    guess: Floats,
    settled: float,
) -> tuple[Floats, Floats, Mask, Floats, float]:
    """Return the fields of `PlanColumns`."""
    # the slice that each loss budget takes: 0 without one, infinite where no loss is allowed
    needed = payload_bytes / (2.0 * beta * loss_budget_s)
    possible = (needed <= caps) & np.isfinite(needed)
    keeps = possible & _uncontested(np.where(possible, needed, 0.0), routes, capacity)
    lower = np.where(keeps, needed, 0.0)
    costs = curves(payload_bytes, hazard_per_s, loss_budget_s, beta, ~keeps, pauses_s)
    rates, multipliers, gap = cheapest(costs, lower, caps, routes, capacity, guess, settled)
    # eq. (9): the best interval under the cap of the loss budget, above the floor of the network
    intervals_s = np.empty(len(rates))
    for job in range(len(rates)):
        hazard = hazard_per_s[job]
        best_s = math.sqrt(2.0 * pauses_s[job] / hazard) if hazard > 0.0 else np.inf
        floor_s = payload_bytes[job] / rates[job] / beta
        intervals_s[job] = max(min(best_s, 2.0 * loss_budget_s[job]), floor_s)
    return rates, intervals_s, rates >= needed * (1.0 - ROUNDING), multipliers, gap


@compiled
def _uncontested(needed: Floats, routes: Numbers, capacity: Floats) -> Mask:
    """Return which jobs' slices fit together with those of all others on every link that they cross."""
    load, over = np.zeros(len(capacity) + 1), np.zeros(len(capacity) + 1, np.bool_)
    for job in range(len(needed)):
        for link in routes[job]:
            load[link] += needed[job]
    over[:-1] = load[:-1] > capacity * (1.0 + SLACK)
    fits = np.ones(len(needed), np.bool_)
    for job in range(len(needed)):
        for link in routes[job]:
            fits[job] &= not (over[link] and needed[job] > 0.0)
    return fits
