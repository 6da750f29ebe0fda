"""P1 in closed form: rates by max-min over the network, intervals by eq. (9).

Here a job stops only for its snapshot, p seconds, and goes on while the checkpoint is sent. A reclaim loses the work since the
last *completed* checkpoint. A job that sends C bytes at rate b every D seconds therefore loses, in seconds a second,

    lambda (D/2 + C/b) + p/D,      C/(beta b) <= D <= 2 L_max      (paper A, eq. 9).

**Intervals.** The best D is sqrt(2 p/lambda). It depends on no rate, unless the network or the loss budget clips it.

**Rates.** A loss budget needs a slice of C/(2 beta L_max) on every link to the standby. Slices are floors on links that have room
for all of them; elsewhere no job is bound by its budget. The rest should make the sum of lambda C/b least. On one link that is b
in proportion to sqrt(lambda C), so links are shared max-min with these weights. On several links that is an approximation, and
the worth of a shorter interval is left out. Over random instances the plan costs at most 2 % more than the least joint cost.

**The share of an interval that sending may take**, beta of eq. (9), is 0.2 in the paper, whose job stands still meanwhile. Here
research and migrations have their shares of each link before P1 has any, so beta has nothing left to protect. It only keeps
one checkpoint from beginning before the last has arrived: SENDING_SHARE. With 0.2, intervals of large payloads were several times
as long as the best interval or the loss budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.core.checkpointing.intervals import (
    BETA,
    CheckpointJob,
    CheckpointSchedule,
    constrained_interval,
)
from controller.core.network import max_min
from controller.core.network.links import SLACK, Network, Paths, filled
from controller.numerics.arrays import Floats, Mask
from controller.numerics.jit import compiled
from topologies.spec import DirectedLink

# of an interval: the rest is for what a transfer takes beside its bytes at the rate of its grant. It is written before the first
# byte leaves (5 % of the sending, at 1.5 GB/s and 80 MB/s), and TCP does not quite fill a grant (3 %, `reservation.GOODPUT`)
SENDING_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class JobColumns:
    """Jobs to plan for, a row each."""

    payload_bytes: Floats  # C
    hazard_per_s: Floats  # lambda, the upper bound of the host's
    write_cap_bytes_per_s: Floats  # W, what its disk or administrator allows
    loss_budget_s: Floats  # L_max; infinite: none
    pauses_s: Floats  # p
    paths: Paths  # to the standby


@dataclass(frozen=True, slots=True)
class PlanColumns:
    """Plan of each job."""

    rates_bytes_per_s: Floats
    intervals_s: Floats  # infinite: never
    budget_kept: Mask  # whether its loss budget can be kept


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """Planner by the closed form.

    `alike`: treat all jobs as if they had the means of hazards and pauses, and the tightest budget. All then have one
    interval, where the network allows it.
    """

    alike: bool = False

    def seen(self, jobs: JobColumns) -> JobColumns:
        """Return the jobs as this planner takes them to be."""
        size = len(jobs.payload_bytes)
        if not self.alike or not size:
            return jobs
        return replace(
            jobs,
            hazard_per_s=filled(jobs.hazard_per_s.mean(), size),
            loss_budget_s=filled(jobs.loss_budget_s.min(), size),
            pauses_s=filled(jobs.pauses_s.mean(), size),
        )

    def plan(
        self, jobs: JobColumns, network: Network, capacity_bytes_per_s: Floats, beta: float
    ) -> PlanColumns:
        """Plan jobs as `seen`, on a budget for checkpoints on each link of the network."""
        payload, paths, cap = jobs.payload_bytes, jobs.paths, jobs.write_cap_bytes_per_s
        needed = payload / (2.0 * beta * jobs.loss_budget_s)
        over = paths.load(needed, len(network)) > capacity_bytes_per_s * (1.0 + SLACK)
        floor = np.where(paths.crossing(np.flatnonzero(over).tolist()) | (needed > cap), 0.0, needed)
        wants = max_min.Wants(network, paths, np.sqrt(jobs.hazard_per_s * payload), floor, cap)
        rates, _ = max_min.fill(wants, capacity_bytes_per_s, stretched=True)
        intervals_s = _intervals_s(
            jobs.hazard_per_s, jobs.loss_budget_s, jobs.pauses_s, payload / beta, rates
        )
        return PlanColumns(rates, intervals_s, rates >= needed * (1.0 - SLACK))

    def __call__(
        self,
        jobs: Sequence[CheckpointJob],
        capacity: Mapping[DirectedLink, float],
        beta: float = BETA,
        snapshot_s: Callable[[float], float] = lambda payload_bytes: 0.0,
    ) -> dict[str, CheckpointSchedule]:
        """Plan jobs by name, as any `Planner` does; `snapshot_s` of a payload is the time for which its snapshot stops the job.

        KeyError: a link without a capacity.
        """
        network = Network(link for job in jobs for link in job.links)
        numbers = [
            (
                j.payload_bytes,
                j.hazard_per_s,
                j.write_cap_bytes_per_s,
                j.loss_budget_s,
                snapshot_s(j.payload_bytes),
            )
            for j in jobs
        ]
        payload, hazard, cap, budget, pause = np.array(numbers, dtype=float).reshape(len(jobs), 5).T.copy()
        paths = Paths.of([network.path(job.links) for job in jobs])
        seen = self.seen(JobColumns(payload, hazard, cap, budget, pause, paths))
        rates = self.plan(seen, network, network.column(capacity), beta).rates_bytes_per_s
        rows = np.array([seen.hazard_per_s, payload, rates, seen.loss_budget_s, seen.pauses_s]).T.tolist()
        return {
            job.key: CheckpointSchedule(
                rate, constrained_interval(hazard_per_s, size_bytes, rate, budget_s, beta, pause_s)
            )
            for job, (hazard_per_s, size_bytes, rate, budget_s, pause_s) in zip(jobs, rows, strict=True)
        }


plan_each = ClosedForm()
plan_alike = ClosedForm(alike=True)


@compiled
def _intervals_s(
    hazard_per_s: Floats, loss_budget_s: Floats, pauses_s: Floats, spread_bytes: Floats, rates: Floats
) -> Floats:
    """Clip sqrt(2 p/lambda) by the loss budget, then by the network's floor C/(beta b), which wins; `spread_bytes`: C/beta."""
    best_s = np.where(hazard_per_s > 0.0, np.sqrt(2.0 * pauses_s / hazard_per_s), np.inf)
    return np.maximum(np.minimum(best_s, 2.0 * loss_budget_s), spread_bytes / rates)
