"""Virtual runs of campuses like paper A's, of any size: jobs and reclaims are in proportion to the hosts."""

from __future__ import annotations

from dataclasses import replace

from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import generate
from experiments.inputs.traces.paper_campus import paper_scenario
from experiments.worlds.virtual.run import VirtualRun, simulate
from topologies.presets import three_tier

PAPER_HOSTS, HOSTS_A_BUILDING = 54, 14


def scenario_of(hosts: int, days: float, jobs: float = 1.0, seed: int = 1) -> Scenario:
    """Paper A's scenario on `hosts` hosts, with `jobs` times its jobs a host."""
    scenario = paper_scenario(seed, days=days)
    if hosts != PAPER_HOSTS:
        volunteers = hosts - 1
        scenario = replace(
            scenario, campus=three_tier(volunteers, max(1, round(volunteers / HOSTS_A_BUILDING)))
        )
    size = (hosts - 1) / (PAPER_HOSTS - 1)
    of_jobs, owners = scenario.jobs, scenario.owners
    assert of_jobs.count is not None
    assert owners.count is not None
    count = max(1, round(of_jobs.count * size * jobs))
    return replace(
        scenario,
        jobs=replace(of_jobs, count=count, work_s=of_jobs.work_s * count / of_jobs.count),
        owners=replace(owners, count=max(1, round(owners.count * size))),
    )


def play(
    system: str, hosts: int = PAPER_HOSTS, days: float = 61.0, jobs: float = 1.0, seed: int = 1
) -> VirtualRun:
    """Play the scenario under one system."""
    scenario = scenario_of(hosts, days, jobs, seed)
    return simulate(scenario, generate(scenario), system=system)
