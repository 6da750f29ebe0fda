"""P1's inputs and answers for all protected jobs of the live campus at once.

A planner that takes columns is given columns; one that takes `CheckpointJob`s is given those. Either way the answer is
`Planned`: a rate and an interval a job, and the details of one job's interval when they are asked for, which is when its
agent is told of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from controller.core.candidates import promised, residual
from controller.core.checkpointing import CheckpointJob, Interval, constrained_interval
from controller.core.joint_planning import ExactPlanner, JobColumns, padded
from controller.core.network import Floats, Numbers
from controller.core.places import Mask
from controller.core.state import JobState
from controller.core.world import World

LEAST_SENT = 1 / 16  # of a payload: what a checkpoint counts at least, however little changed last time


@dataclass(frozen=True, slots=True)
class Planned:
    """Of each job in order: bytes/s, seconds (infinite: never), whether its loss budget cannot be kept, its hazard."""

    rates_bytes_per_s: Floats
    intervals_s: Floats
    infeasible: Mask
    hazards_per_s: Floats
    interval: Callable[[int], Interval]


def plan_all(world: World, jobs: Sequence[JobState], now_s: float) -> Planned:
    """Rates and intervals of all these jobs, every one of which has a host (a volunteer) and a standby."""
    hazards, counted = _hazards(world, jobs, now_s), _counted(jobs)
    if isinstance(world.policy.plan, ExactPlanner):
        return _in_columns(world, world.policy.plan, jobs, hazards, counted, now_s)
    return _in_objects(world, jobs, hazards, counted, now_s)


def _in_columns(
    world: World,
    planner: ExactPlanner,
    jobs: Sequence[JobState],
    hazards: Floats,
    counted: Floats,
    now_s: float,
) -> Planned:
    budgets = np.array([job.spec.loss_budget_s for job in jobs], dtype=float)
    everybody, beta = np.arange(len(jobs)), world.settings.checkpoint_share
    columns = JobColumns(
        counted, hazards, np.full(len(jobs), np.inf), budgets, _routes(world, jobs), everybody
    )
    free = residual(world, now_s, promised).column
    found = planner.columns(columns, free, beta, world.known.multipliers)
    world.known.multipliers, rates = found.allocation.multipliers, found.rates_bytes_per_s

    def interval(row: int) -> Interval:
        hazard, payload, rate, budget = (float(c[row]) for c in (hazards, counted, rates, budgets))
        return constrained_interval(hazard, payload, rate, budget, beta)

    return Planned(rates, found.intervals_s, ~found.budget_kept, hazards, interval)


def _in_objects(
    world: World, jobs: Sequence[JobState], hazards: Floats, counted: Floats, now_s: float
) -> Planned:
    asked = [
        CheckpointJob(
            job.name,
            payload,
            hazard,
            world.routes.route(job.host or "", job.standby or ""),
            loss_budget_s=job.spec.loss_budget_s,
        )
        for job, payload, hazard in zip(jobs, counted.tolist(), hazards.tolist(), strict=True)
    ]
    free = residual(world, now_s, promised)
    by_name = world.policy.plan(asked, free, world.settings.checkpoint_share)
    plans = [by_name[job.name] for job in jobs]
    return Planned(
        np.array([plan.rate_bytes_per_s for plan in plans], dtype=float),
        np.array([plan.interval_s for plan in plans], dtype=float),
        np.array([plan.interval.loss_budget_infeasible for plan in plans], dtype=bool),
        hazards,
        lambda row: plans[row].interval,
    )


def _hazards(world: World, jobs: Sequence[JobState], now_s: float) -> Floats:
    """Upper hazard of each job's host at this time of day."""
    number = world.places.number
    hosts = np.fromiter((number[job.host or ""] for job in jobs), np.intp, len(jobs))
    hazards: Floats = world.hazards_now_per_s(now_s)[hosts]
    return hazards


def _counted(jobs: Sequence[JobState]) -> Floats:
    """C of each: what its last checkpoint to the same standby really sent, but LEAST_SENT of it at least."""
    whole = np.array([job.spec.payload_bytes for job in jobs], dtype=float)
    sent = np.array([np.nan if job.sent_bytes is None else job.sent_bytes for job in jobs], dtype=float)
    return np.where(np.isnan(sent), whole, np.maximum(sent, whole * LEAST_SENT))


def _routes(world: World, jobs: Sequence[JobState]) -> Numbers:
    """From each job's host to its standby; as last time, if those are the same."""
    ends = [(job.host or "", job.standby or "") for job in jobs]
    if world.known.routes is None or world.known.routes[0] != ends:
        paths = [world.path(host, standby) for host, standby in ends]
        world.known.routes = (ends, padded(paths, len(world.network)))
    return world.known.routes[1]
