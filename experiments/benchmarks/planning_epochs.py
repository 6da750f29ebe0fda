"""P1's rows on the same random epochs: how often a limit is broken, and what is lost.

An epoch is a set of jobs with payloads, hazards, loss budgets and routes; each planner answers with rates and intervals.
A limit is broken where the interval is longer than 2 L_max (a reclaim costs more work than was allowed), or where writes
occupy more than beta of the job's slice (eq. 9's floor). Lost per second is lambda (D/2 + C/b) + p/D, summed over jobs, where p
is what a checkpoint stops its job for: the time of a snapshot, since our agents' jobs go on while they are sent, or, as in
the paper, that of the whole write, C/b.

Paper A gives no law of loss budgets. `on_one_link` is the notes' setting, four jobs on 66 MB/s; payloads as in `reclaim_waves`,
hazards gamma of CV .62 around .15 an hour (F4), budgets of 15 to 60 minutes. A planner that breaks limits can lose less
in all, for those whom it serves instead; so losses are compared also over the epochs in which the second planner and the
third keep all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from controller.core.admission.admission import migration_share
from controller.core.checkpointing.intervals import (
    BETA,
    CheckpointJob,
    CheckpointSchedule,
    Planner,
    StaticPlanner,
    plan,
    plan_as_printed,
    plan_one_interval,
)
from controller.core.checkpointing.planner import plan_behind, plan_exact, plan_least_loss
from experiments.benchmarks.reclaim_waves import LINK, payload_bytes
from experiments.inputs.scenario.settings import snapshot_s
from topologies.paths import Routes
from topologies.presets import campus54
from topologies.spec import DirectedLink, Role

PLANNERS: dict[str, Planner] = {
    "joint, jobs go on while sent": partial(plan_behind, snapshot_s=snapshot_s),
    "joint, writes stop jobs": plan_least_loss,
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
    """{planner: shares of epochs and of jobs with a broken limit, mean loss, and its ratio to the first planner's; the
    same of the loss by the paper's cost, to the second's}."""
    drawn = [draw(Random(f"epoch {n}")) for n in range(epochs)]
    found = {
        name: [_judged(jobs, p(jobs, room, BETA)) for jobs, room in drawn] for name, p in PLANNERS.items()
    }
    first, one, other = list(found.values())[:3]
    kept = [n for n in range(epochs) if one[n].broken == other[n].broken == 0]
    return {
        name: {
            "epochs_broken": fmean(each.broken > 0 for each in of),
            "jobs_broken": fmean(each.broken / each.jobs for each in of),
            "lost_per_s": fmean(each.lost for each in of),
            "lost_to_first": fmean(each.lost for each in of) / fmean(each.lost for each in first),
            "lost_to_first_where_kept": fmean(of[n].lost for n in kept) / fmean(first[n].lost for n in kept)
            if kept
            else 1.0,
            "stopped_per_s": fmean(each.stopped for each in of),
            "stopped_to_second": fmean(each.stopped for each in of) / fmean(each.stopped for each in one),
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


class JudgedPlans(NamedTuple):
    """Jobs with a broken limit, jobs, and lost per second: of jobs that go on, and of jobs that a write stops."""

    broken: int
    jobs: int
    lost: float
    stopped: float


def _judged(jobs: Sequence[CheckpointJob], plans: Mapping[str, CheckpointSchedule]) -> JudgedPlans:
    broken, lost, stopped = 0, 0.0, 0.0
    for job in jobs:
        rate, interval_s = plans[job.key].rate_bytes_per_s, plans[job.key].interval_s
        write_s = job.payload_bytes / rate if rate > 0.0 else math.inf
        too_seldom = interval_s > 2.0 * job.loss_budget_s * (1.0 + ROUNDING)
        broken += too_seldom or write_s > BETA * interval_s * (1.0 + ROUNDING)
        reclaimed = job.hazard_per_s * (interval_s / 2.0 + write_s)
        lost += reclaimed + snapshot_s(job.payload_bytes) / interval_s
        stopped += reclaimed + write_s / interval_s
    return JudgedPlans(broken, len(jobs), lost, stopped)


def settings() -> dict[str, Any]:
    """What draws an epoch, by the name of either setting."""
    return {"4 jobs on one link of 66 MB/s": on_one_link, "27 jobs on paper A's campus": OnCampus()}
