"""Runs of the learners on the loaded campus, with the jobs' waiting times, costs and losses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from controller.core.model import facts as f
from experiments.inputs.scenario.owners import HOUR_S
from experiments.inputs.traces import generate
from experiments.inputs.traces.loaded_campus import loaded_campus
from experiments.runtime.tasks import Task
from experiments.worlds.virtual import simulate


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run of `reclaimnet`. `load`: GPU time that jobs ask for, over the mean that owners lend; `level_max`: r_max."""

    learner: str
    load: float
    seed: int
    days: float
    level_max: float

    @property
    def task(self) -> Task:
        """Its task; the key names everything that the result depends on, but for the code."""
        level_max = f"r_max {self.level_max:g}"
        key = f"both: {self.learner}, load {self.load:g}, seed {self.seed}, {self.days:g} days, {level_max}"
        return Task(key, play, (self,))


def play(wanted: LoadedRun) -> dict[str, Any]:
    """Play one task; return its figures: waiting, cost, outcomes and losses of the jobs."""
    scenario = loaded_campus(wanted.load, wanted.seed, wanted.days, wanted.level_max)
    scenario = replace(scenario, queue=replace(scenario.queue, learner=wanted.learner))
    run = simulate(scenario, generate(scenario), wanted.seed)
    first = {}
    for _, fact in run.facts:
        if isinstance(fact, f.JobDispatched) and fact.job not in first:
            first[fact.job] = fact
    levels = [fact.level for _, fact in run.facts if isinstance(fact, f.JobRedirected)]
    summary = run.summary()
    return {
        "submitted": summary.jobs.submitted,
        "lost_jobs": summary.jobs.lost,
        "delay_h": sum(fact.delay_s or 0.0 for fact in first.values()) / max(1, len(first)) / HOUR_S,
        "cost": sum(fact.cost or 0.0 for fact in first.values()) / max(1, len(first)),
        "rented": summary.jobs.on_demand / max(1, summary.jobs.submitted),
        "level": levels[-1] if levels else None,
        "admitted": summary.migrations.admitted,
        "in_time": summary.migrations.in_time,
        "reclaims": summary.emergencies.reclaims,
        "broken": sorted({broken.rule for broken in summary.invariants_broken}),
    }
