"""Both papers at once: the spot queue decides which jobs wait, while owners take back the hosts that it hands out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controller.core.model import facts as f
from experiments.claims.framework.claim import Check, ClaimKind, Config
from experiments.claims.framework.panels import Panel
from experiments.claims.framework.rows import mean_row, paired_row
from experiments.claims.framework.runs import gather
from experiments.claims.framework.values import Value, Values
from experiments.claims.framework.verdicts import below, near
from experiments.inputs.scenario.owners import HOUR_S
from experiments.inputs.traces import generate, loaded_campus
from experiments.inputs.traces.loaded_campus import DELTA_H, K
from experiments.runtime.tasks import Task
from experiments.worlds.virtual import simulate

LOADS = (0.3, 0.6, 0.9)
LEARNED, CAPPED, FIXED = "r learned, r_max = 64", "r learned, r_max = 8", "r = 1 for ever"
# (`queue.learner`, r_max): 8 is what paper B's claims use
SYSTEMS: dict[str, tuple[str, float]] = {LEARNED: ("age", 64.0), CAPPED: ("age", 8.0), FIXED: ("fixed", 8.0)}
QUICK_DAYS, QUICK_SEEDS = 2.0, 6
FULL_DAYS, FULL_SEEDS = 14.0, 8
TOLERANCE = 0.1  # of delta, over runs of some hundreds of jobs


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
    scenario = loaded_campus.loaded_campus(wanted.load, wanted.seed, wanted.days, wanted.level_max)
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
        "judged": summary.migrations.in_time + summary.migrations.late,
        "in_time": summary.migrations.in_time,
        "reclaims": summary.emergencies.reclaims,
        "broken": sorted({broken.rule for broken in summary.invariants_broken}),
    }


def run(config: Config) -> Values:
    """Run every system at every load."""
    seeds = config.seeds_of(QUICK_SEEDS, FULL_SEEDS)
    days = QUICK_DAYS if config.quick else FULL_DAYS
    wanted = {
        (name, load): [LoadedRun(learner, load, seed, days, level_max).task for seed in seeds]
        for name, (learner, level_max) in SYSTEMS.items()
        for load in LOADS
    }
    found = gather(wanted, config)
    rows = [value for (name, load), runs in found.items() for value in _numbers(name, load, runs)]
    for load in LOADS:
        costs = ([run["cost"] for run in found[name, load]] for name in (LEARNED, FIXED))
        rows.append(paired_row(group(load), f"{LEARNED} - {FIXED}", "cost", "", *costs))
    every = [run for runs in found.values() for run in runs]
    settings = {
        "runs": f"{len(seeds)} seeds of {days:g} days, {sum(run['submitted'] for run in every)} jobs in all",
        "promises broken": ", ".join(sorted({rule for run in every for rule in run["broken"]})) or "none, in any run",
        "queue": f"k = {K:g}, delta = {DELTA_H:g} h, offers stand until they are taken or withdrawn",
        "world": "virtual campus: the live coordinator's and agents' cores over a fluid network",
    }
    return Values(tuple(rows), (), settings)


def group(load: float) -> str:
    """Return the rows of one load."""
    return f"load {load:g}"


def _numbers(name: str, load: float, runs: Sequence[Mapping[str, Any]]) -> Iterator[Value]:
    yield mean_row(group(load), name, "delay", "h", [run["delay_h"] for run in runs], "of all jobs", exact=DELTA_H)
    yield mean_row(group(load), name, "cost", "", [run["cost"] for run in runs], f"of a job; k = {K:g}")
    yield mean_row(group(load), name, "rented", "%", [100.0 * run["rented"] for run in runs], "of jobs")
    levels = [run["level"] for run in runs if run["level"] is not None]
    if levels:
        yield mean_row(group(load), name, "r", "jobs", levels, "when a job was last sent to on-demand")
    judged = sum(run["judged"] for run in runs)
    if judged:
        in_time = [100.0 * run["in_time"] / run["judged"] for run in runs if run["judged"]]
        yield mean_row(group(load), name, "in time", "%", in_time, f"of {judged} admitted, whose job did not end first")


def checks(values: Values) -> Iterator[Check]:
    """Yield the checks of the paper's statements, from the values alone."""
    for load in LOADS:
        delay = values.find(group(load), LEARNED, "delay")
        text = f"{group(load)}: jobs wait no longer than delta on average"
        yield below(ClaimKind.ORDERING, text, delay, DELTA_H * (1.0 + TOLERANCE))
    most = group(LOADS[-1])
    text = f"{most}: what jobs may wait is used: the mean delay is delta"
    yield near(ClaimKind.VALUE, text, values.find(most, LEARNED, "delay"), DELTA_H, TOLERANCE)
    saved = values.get(most, f"{LEARNED} - {FIXED}", "cost")
    yield below(ClaimKind.ORDERING, f"{most}: r learned costs less than r = 1", saved, 0.0)
    capped = values.find(most, CAPPED, "delay")
    yield near(ClaimKind.BEYOND, f"{most}: r_max = 8 leaves room for delta", capped, DELTA_H, TOLERANCE)


_LOADS = {group(load): load for load in LOADS}
PANELS = (
    Panel("delay", "Mean delay", xs=_LOADS, x="GPU time asked for, of what is lent", y="h", marks={"delta": DELTA_H}),
    Panel("cost", "Mean cost of a job", xs=_LOADS, x="GPU time asked for, of what is lent"),
)
