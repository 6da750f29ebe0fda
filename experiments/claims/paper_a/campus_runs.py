"""The runs that paper A's tables and figures share: (system, seed, days, variation) -> a compact result, each run once.

Table IV, Fig. 6 or Fig. 9 find the rows of Table III where these were kept. Systems are compared on the same jobs and owners,
seed by seed.

A variation is what a claim changes in the scenario; nothing else may differ between two runs of one seed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from controller.user_policies import find_policy, source_of
from experiments.claims.framework.claim import Config
from experiments.claims.paper_a import campus_result
from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import Trace, paper_campus
from experiments.runtime.tasks import Task
from experiments.worlds.oracle import run_oracle
from experiments.worlds.virtual import simulate

ORACLE, MB = "oracle", 1_000_000
QUICK_DAYS, QUICK_SEEDS = 3.0, 6
FULL_DAYS, FULL_SEEDS = 61.0, 20


@dataclass(frozen=True, slots=True)
class Variation:
    """A change of the scenario; None leaves a field as it is.

    `beta_p1` of eq. (9), `alpha` of eq. (11), `beta_p3` of section VII-B. `payloads_mb`: the jobs have these payloads
    in turn, so that all classes meet the same owners.
    """

    beta_p1: float | None = None
    alpha: float | None = None
    beta_p3: float | None = None
    payloads_mb: tuple[int, ...] | None = None

    def __str__(self) -> str:
        changed = {each.name: getattr(self, each.name) for each in fields(self)}
        return ", ".join(f"{name} {value}" for name, value in changed.items() if value is not None)

    def dealt(self, trace: Trace) -> Trace:
        """Return the trace so changed; a job's memory is what it was."""
        if (payloads_mb := self.payloads_mb) is None:
            return trace
        arrivals = tuple(
            replace(one, job=replace(one.job, payload_bytes=payloads_mb[n % len(payloads_mb)] * MB))
            for n, one in enumerate(trace.arrivals)
        )
        return replace(trace, arrivals=arrivals)

    def applied(self, scenario: Scenario) -> Scenario:
        """Return the scenario so changed; jobs and owners stay as they are."""
        protocol, campus = scenario.protocol, scenario.campus
        if self.beta_p1 is not None:
            protocol = replace(protocol, checkpoint_share=self.beta_p1)
        if self.alpha is not None:
            protocol = replace(protocol, stability_penalty=self.alpha)
        if self.beta_p3 is not None:
            campus = replace(campus, research_reserve=replace(campus.research_reserve, beta=self.beta_p3))
        return replace(scenario, protocol=protocol, campus=campus)


AS_IS = Variation()


def with_source(system: str) -> str:
    """Return a system's name; of a user's own with what its file holds."""
    own = source_of(system)
    return f"{system} of {own}" if own else system


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run to be played or looked up."""

    system: str
    seed: int
    days: float
    variation: Variation = AS_IS

    @property
    def task(self) -> Task:
        """Its task; the key names everything that the result depends on, but for the code. SpecError: no such system."""
        if self.system != ORACLE:
            find_policy(self.system)
        told = f"{with_source(self.system)}, seed {self.seed}, {self.days:g} days, {self.variation}"
        return Task(told.rstrip(", "), play, (self,))


@dataclass(frozen=True, slots=True)
class CampusSize:
    """Days and seeds of a claim's runs."""

    days: float
    seeds: tuple[int, ...]

    def runs(self, system: str, variation: Variation = AS_IS) -> list[Task]:
        """Return a run for each seed, in order."""
        return [Wanted(system, seed, self.days, variation).task for seed in self.seeds]


def size_of(config: Config) -> CampusSize:
    """Return the size of the runs: three days and a few seeds, or the paper's two months and twenty, or the seeds asked for."""
    return CampusSize(QUICK_DAYS if config.quick else FULL_DAYS, config.seeds_of(QUICK_SEEDS, FULL_SEEDS))


def play(wanted: Wanted) -> dict[str, Any]:
    """Play the run of one task."""
    scenario, trace = paper_campus(wanted.seed, days=wanted.days)
    scenario, trace = wanted.variation.applied(scenario), wanted.variation.dealt(trace)
    if wanted.system != ORACLE:
        run = simulate(scenario, trace, wanted.seed, system=wanted.system)
        return campus_result.compact(run, trace)
    found = run_oracle(scenario, trace, wanted.seed)
    compact = campus_result.compact(found.run, trace)
    # it knows owners' moments: a mean over others would be of nothing that it was made for
    compact["expected_emergencies_s"] = compact["online_s"] = None
    return compact
