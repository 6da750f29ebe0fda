"""P1's rows on the same random epochs: how often a promise is broken, and what is lost.

An epoch is a set of jobs with payloads, hazards, loss budgets and routes; each planner answers with rates and intervals.
A promise is broken where the interval is longer than 2 L_max (a reclaim costs more work than was allowed), or where writes
occupy more than beta of the job's slice (eq. 9's floor). Lost per second is lambda (D/2 + C/b) + C/(b D), summed over jobs.

Paper A gives no law of loss budgets. `ONE_LINK` is the notes' setting, four jobs on 66 MB/s; payloads as in `reclaim_waves`,
hazards gamma of CV .62 around .15 an hour (F4), budgets of 15 to 60 minutes. A planner that breaks promises can lose less
in all, for those whom it serves instead; so losses are compared also over the epochs in which the first planner and the
second keep all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Any

from controller.core.admission import migration_share
from controller.core.checkpointing import (
    BETA,
    CheckpointJob,
    CheckpointPlan,
    Planner,
    StaticPlanner,
    plan,
    plan_as_printed,
    plan_one_interval,
)
from controller.core.joint_planning import plan_exact, plan_least_loss
from experiments.measure.reclaim_waves import LINK, payload_bytes
from topologies.paths import Routes
from topologies.presets import campus54
from topologies.spec import DirectedLink, Role

PLANNERS: dict[str, Planner] = {
    "joint, least loss": plan_least_loss,
    "joint, fewest budgets broken": plan_exact,
    "cube roots, budgets inside": plan,
    "cube roots, then clip": plan_as_printed,
    "one interval": plan_one_interval,
    "10 min for all": StaticPlanner(),
}
ONE_LINK_BYTES_PER_S = 66e6
ONE_LINK_JOBS, CAMPUS_JOBS = 4, 27
HAZARD_PER_S, SHAPE = 0.15 / 3600.0, 1.0 / 0.62**2
LOSS_BUDGETS_S = (
    900.0,
    1800.0,
    3600.0,
)  # on one link, clipping breaks one in half of the epochs, as in the notes
ROUNDING = 1e-6

Epoch = tuple[list[CheckpointJob], Mapping[DirectedLink, float]]


def measure_epochs(epochs: int, draw: Callable[[Random], Epoch]) -> dict[str, dict[str, float]]:
    """{planner: shares of epochs and of jobs with a broken promise, mean loss, and its ratio to the first planner's}."""
    drawn = [draw(Random(f"epoch {n}")) for n in range(epochs)]
    found = {
        name: [_judged(jobs, p(jobs, room, BETA)) for jobs, room in drawn] for name, p in PLANNERS.items()
    }
    one, other = list(found.values())[:2]
    kept = [n for n in range(epochs) if one[n][0] == other[n][0] == 0]
    first = fmean(lost for _, _, lost in one)
    first_kept = fmean(one[n][2] for n in kept) if kept else 0.0
    return {
        name: {
            "epochs_broken": fmean(broken > 0 for broken, _, _ in of),
            "jobs_broken": fmean(broken / jobs for broken, jobs, _ in of),
            "lost_per_s": fmean(lost for _, _, lost in of),
            "lost_to_first": fmean(lost for _, _, lost in of) / first,
            "lost_to_first_where_kept": fmean(of[n][2] for n in kept) / first_kept if kept else 1.0,
        }
        for name, of in found.items()
    }


def on_one_link(rng: Random) -> Epoch:
    """Four jobs that share a link."""
    jobs = [_job(f"j{n}", rng, (LINK,)) for n in range(ONE_LINK_JOBS)]
    return jobs, {LINK: ONE_LINK_BYTES_PER_S}


class OnCampus:
    """A job on every second host of paper A's campus, with standbys among the others."""

    def __init__(self) -> None:
        campus = campus54()
        self.hosts = [host.name for host in campus.hosts if host.role is Role.VOLUNTEER]
        self.routes = Routes(campus)
        self.share = migration_share(campus.capacity_bytes_per_s, campus.research_reserve)

    def __call__(self, rng: Random) -> Epoch:
        hosts = rng.sample(self.hosts, len(self.hosts))
        busy, idle = hosts[:CAMPUS_JOBS], hosts[CAMPUS_JOBS:]
        jobs = [_job(host, rng, self.routes.route(host, rng.choice(idle))) for host in busy]
        return jobs, self.share


def _job(key: str, rng: Random, links: Sequence[DirectedLink]) -> CheckpointJob:
    hazard = HAZARD_PER_S * rng.gammavariate(SHAPE, 1.0 / SHAPE)
    return CheckpointJob(
        key, payload_bytes(rng), hazard, tuple(links), loss_budget_s=rng.choice(LOSS_BUDGETS_S)
    )


def _judged(jobs: Sequence[CheckpointJob], plans: Mapping[str, CheckpointPlan]) -> tuple[int, int, float]:
    """(jobs with a broken promise, jobs, lost per second)."""
    broken, lost = 0, 0.0
    for job in jobs:
        rate, interval_s = plans[job.key].rate_bytes_per_s, plans[job.key].interval_s
        write_s = job.payload_bytes / rate if rate > 0.0 else math.inf
        too_seldom = interval_s > 2.0 * job.loss_budget_s * (1.0 + ROUNDING)
        broken += too_seldom or write_s > BETA * interval_s * (1.0 + ROUNDING)
        lost += job.hazard_per_s * (interval_s / 2.0 + write_s) + write_s / interval_s
    return broken, len(jobs), lost


def settings() -> dict[str, Any]:
    """Of both, by name: what draws an epoch."""
    return {"4 jobs on one link of 66 MB/s": on_one_link, "27 jobs on paper A's campus": OnCampus()}
