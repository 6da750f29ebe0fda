"""A campus with rented capacity beside the lent: paper A's owners, jobs at a load that makes paper B's queue decide.

Paper A's own campus has no on-demand hosts and a load of 4 %, so that no job ever waits or pays there. Here owners, payloads and
notices are its, on fewer hosts; jobs are shorter and come at a chosen share of what the lent GPUs can compute.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from controller.core.model import facts as f
from experiments.inputs.scenario import InverseLaw, Scenario
from experiments.inputs.scenario.owners import HOUR_S
from experiments.inputs.traces import generate
from experiments.inputs.traces.paper_campus import PaperCampus, paper_scenario
from experiments.worlds.virtual import simulate
from topologies.presets import three_tier

# a third of the paper's hosts, so that a run takes seconds; as many rented slots as jobs could ever ask for
HOSTS, BUILDINGS, SLOTS = 18, 3, 512
# short against the run, so that some hundreds of jobs come, and long against delta, so that waiting is worth while
JOB_MEAN_H = 4.0
K, DELTA_H = 10.0, 1.0
JOB_SIGMA = 1.0


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """One run. `load`: GPU time that jobs ask for, over what owners lend on average; `level_max`: r_max."""

    system: str
    load: float
    seed: int
    days: float
    level_max: float

    @property
    def key(self) -> str:
        """Names everything that the result depends on, but for the code."""
        return f"both: {self.system}, load {self.load:g}, seed {self.seed}, {self.days:g} days, r_max {self.level_max:g}"


def loaded_campus(wanted: LoadedRun) -> Scenario:
    """The scenario. SpecError: days outside `paper_scenario`'s."""
    base, choices = paper_scenario(wanted.seed, days=wanted.days), PaperCampus()
    campus = three_tier(HOSTS, BUILDINGS, 1, on_demand_slots=SLOTS, reserve=base.campus.research_reserve)
    volunteers = replace(base, campus=campus).volunteers
    gpus = choices.lent_share * sum(host.gpus for host in volunteers)
    between_s = JOB_MEAN_H * HOUR_S / (wanted.load * gpus)
    median_s = JOB_MEAN_H * HOUR_S / math.exp(JOB_SIGMA * JOB_SIGMA / 2.0)
    jobs = replace(
        base.jobs,
        interarrival=InverseLaw("exponential", between_s),
        run_time=InverseLaw("lognormal", median_s, JOB_SIGMA, 0.25 * HOUR_S, 48 * HOUR_S),
        count=None,
        work_s=0.0,
    )
    reclaims = round((base.owners.count or 0) * len(volunteers) / len(base.volunteers))
    return replace(
        base,
        name="loaded-campus",
        campus=campus,
        jobs=jobs,
        owners=replace(base.owners, count=max(1, reclaims)),
        queue=replace(
            base.queue, on_demand_cost=K, target_delay_s=DELTA_H * HOUR_S, level_max=wanted.level_max
        ),
    )


def play(wanted: LoadedRun) -> dict[str, Any]:
    """The run of one task: what jobs waited and paid, what became of them, and what they lost."""
    scenario = loaded_campus(wanted)
    run = simulate(scenario, generate(scenario), wanted.seed, system=wanted.system)
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
