"""Paper A's two months as a scenario and a trace: 54 hosts, 312 jobs, 847 reclaims in 61 days, or fewer days at these rates.

`experiments/examples/paper-campus.toml` has every number: the paper's own (section IV, F1 to F4, and section IX-A) and those
chosen where it gives none, each with its reason. For another campus, edit that file.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.inputs.scenario import InverseLaw, Scenario, load
from experiments.inputs.scenario.owners import HOUR_S
from experiments.inputs.traces.generated import generate
from experiments.inputs.traces.trace import Trace
from topologies.errors import SpecError
from topologies.presets import three_tier
from topologies.spec import Campus, ResearchReserve
from topologies.units import MBIT_PER_S

DAY_S = 24 * HOUR_S
DAYS = 61.0
JOBS = 312  # section IX-A
RECLAIMS = 847
RESERVE = ResearchReserve(beta=0.3)  # beta_p3 of the paper's campus


def two_buildings() -> Campus:
    """Return 54 hosts in two buildings instead of four."""
    return three_tier(54, 2, hosts_per_access=9, reserve=RESERVE)


def eight_buildings() -> Campus:
    """Return 200 hosts in eight buildings."""
    return three_tier(200, 8, reserve=RESERVE)


def slow_uplinks() -> Campus:
    """Return 54 hosts behind old switches, below the background's law of either level, so without others' traffic."""
    return three_tier(
        54,
        access_bytes_per_s=100 * MBIT_PER_S,
        uplink_bytes_per_s=200 * MBIT_PER_S,
        core_bytes_per_s=200 * MBIT_PER_S,
        reserve=RESERVE,
    )


def paper_campus(seed: int = 1, *, days: float = DAYS) -> tuple[Scenario, Trace]:
    """Return the scenario and its trace, in real units. SpecError: `days` outside 0.1 to 3650."""
    scenario = paper_scenario(seed, days=days)
    return scenario, generate(scenario)


def paper_scenario(seed: int = 1, *, days: float = DAYS) -> Scenario:
    """Return the scenario alone; with fewer `days`, jobs, reclaims and GPU-hours in proportion."""
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0.1 <= days <= 3650.0:
        raise SpecError("days", days, "a number from 0.1 to 3650")
    whole = load("example:paper-campus")
    jobs, reclaims = (max(1, round(count * days / DAYS)) for count in (JOBS, RECLAIMS))
    between = InverseLaw("exponential", days * DAY_S / jobs)
    return replace(
        whole,
        seed=seed,
        duration_s=days * DAY_S,
        jobs=replace(whole.jobs, interarrival=between, count=jobs, work_s=whole.jobs.work_s / JOBS * jobs),
        owners=replace(whole.owners, count=reclaims),
    )
