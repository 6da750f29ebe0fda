"""A campus with rented capacity beside the lent: paper A's owners, jobs at a load that makes paper B's queue decide.

Paper A's own campus has no on-demand hosts and a load of 4 %, so that no job ever waits or pays there. Here owners, payloads and
notices are its, on fewer hosts; jobs are shorter and come at a chosen share of what the lent GPUs can compute.
"""

from __future__ import annotations

import math
from dataclasses import replace

from experiments.inputs.scenario import InverseLaw, Scenario
from experiments.inputs.scenario.owners import HOUR_S
from experiments.inputs.traces.paper_campus import paper_scenario
from topologies.presets import three_tier

# a third of the paper's hosts, so that a run takes seconds; as many rented slots as jobs could ever ask for
HOSTS, BUILDINGS, SLOTS = 18, 3, 512
# short against the run, so that some hundreds of jobs come, and long against delta, so that waiting is worth while
JOB_MEAN_H = 4.0
K, DELTA_H = 10.0, 1.0
JOB_SIGMA = 1.0


def loaded_campus(load: float, seed: int, days: float, level_max: float) -> Scenario:
    """Return the scenario.

    `load`: GPU time that jobs ask for, over what owners lend on average; `level_max`: r_max.

    SpecError: days outside `paper_scenario`'s.
    """
    base = paper_scenario(seed, days=days)
    campus = three_tier(HOSTS, BUILDINGS, 1, on_demand_slots=SLOTS, reserve=base.campus.research_reserve)
    volunteers = replace(base, campus=campus).volunteers
    gpus = base.owners.lent_at_start * sum(host.gpus for host in volunteers)
    between_s = JOB_MEAN_H * HOUR_S / (load * gpus)
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
        queue=replace(base.queue, on_demand_cost=K, target_delay_s=DELTA_H * HOUR_S, level_max=level_max),
    )
