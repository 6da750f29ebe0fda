"""Paper A, Table III: the systems side by side, on the same jobs and owners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from controller.core.policies.table import POLICIES, SYSTEMS
from experiments.claims.framework.claim import Check, ClaimKind, Config
from experiments.claims.framework.panels import Panel, label
from experiments.claims.framework.rows import mean_row
from experiments.claims.framework.runs import gather
from experiments.claims.framework.values import Value, Values
from experiments.claims.framework.verdicts import above, at_most, below, near
from experiments.claims.paper_a import campus_numbers as numbers
from experiments.claims.paper_a import reclaim_bursts
from experiments.claims.paper_a.campus_runs import ORACLE, size_of
from experiments.claims.paper_a.reclaim_bursts import MOST, SHORT_S, Wave
from experiments.results.loss_budgets import MAX_OVER
from experiments.runtime.tasks import Result

OURS, PRINTED = "reclaimnet", "reclaimnet-as-printed"
GROUP, RATIOS = "Table III", "ReclaimNet over others"
PARTS = "Lost GPU time, by part"
RESEARCH = "What research lacks, in the same runs"
ONLINE = "The least of emergencies and pauses without knowing the future"
# "Within 8 % of the oracle": what ReclaimNet may lose for each hour that the oracle loses.
NEAR_ORACLE = 1.08
# times the least of any on-line schedule, loss budgets or not: what the project asks of itself
NEAR_ONLINE = 1.5
DEGRADATION = "degradation"
PUBLISHED: dict[str, dict[str, float]] = {
    "slurm-pr": {"work loss": 8.2, "downtime": 195, "success": 64.5, DEGRADATION: 26.4, "utilisation": 38.1},
    "no-migration": {"work loss": 18.4, "success": 0, DEGRADATION: 0.0, "utilisation": 31.2},
    "static": {"work loss": 7.6, "downtime": 127, "success": 71.3, DEGRADATION: 18.4, "utilisation": 46.8},
    "bamboo": {"work loss": 4.5, "downtime": 75, "success": 85.4, DEGRADATION: 8.2, "utilisation": 58.7},
    "random-dst": {"work loss": 3.8, "downtime": 98, "success": 84.2, DEGRADATION: 7.3, "utilisation": 59.1},
    "no-tc-bpf": {"work loss": 3.1, "downtime": 71, "success": 88.9, DEGRADATION: 31.0, "utilisation": 65.3},
    "tv-fixed-interval": {"work loss": 3.0, "downtime": 64, "success": 90.4, DEGRADATION: 2.9, "utilisation": 67.5},
    PRINTED: {"work loss": 2.8, "downtime": 61, "success": 91.3, DEGRADATION: 2.8, "utilisation": 68.7},
    OURS: {"work loss": 2.8, "downtime": 61, "success": 91.3, DEGRADATION: 2.8, "utilisation": 68.7},
    ORACLE: {"work loss": 2.6, "downtime": 53, "success": 94.1, DEGRADATION: 0.0, "utilisation": 71.4},
}
# `reclaimnet` with one interval for all jobs, without second copies, and without the allowance
BESIDE = ("one-interval", "one-copy", "research-whole")
CELLS = {"downtime": 0.15, "success": 0.05, DEGRADATION: 0.2, "utilisation": 0.05}  # relative tolerances
# cells that the model of a system decides: a system that moves nothing disturbs nothing and hands nothing over, a
# replica's steps are slower by a constant, and where a fluid net keeps the reserve, research that asks for it loses nothing;
# the oracle needs a trace to plan on, so it is not played in waves
NOT_JUDGED = {("no-migration", "success"), ("no-migration", DEGRADATION), ("bamboo", "utilisation")} | {
    (system, DEGRADATION) for system in PUBLISHED if system == ORACLE or POLICIES[system].enforced
}
WORSE = ("slurm-pr", "no-migration", "static", "bamboo", "random-dst", "no-tc-bpf", "tv-fixed-interval")


def systems_of(config: Config) -> tuple[str, ...]:
    """Return the systems of the paper, labelled rows, ablations of `reclaimnet`, and those asked for."""
    return tuple(dict.fromkeys((*SYSTEMS, ORACLE, *BESIDE, *config.systems)))


def run(config: Config) -> Values:
    """Run every system on the campus, and in waves of seven."""
    systems, size = systems_of(config), size_of(config)
    runs = gather({system: size.runs(system) for system in systems}, config)
    rows = [
        value for system in systems for value in numbers.metric_rows(GROUP, system, runs[system], PUBLISHED.get(system))
    ]
    for system in systems:
        rows += numbers.metric_rows(PARTS, system, runs[system], None, (*numbers.LOST_PARTS, numbers.OVER_BUDGET))
        if has_expectation(runs[system]):
            rows += numbers.metric_rows(PARTS, system, runs[system], None, (numbers.EXPECTED,))
        rows += numbers.metric_rows(RESEARCH, system, runs[system], None, numbers.RESEARCH)
    rows += degradations(
        GROUP, {system: PUBLISHED.get(system, {}).get(DEGRADATION) for system in systems if system != ORACLE}, config
    )
    rows += _ratios(runs)
    for system in systems:
        if all(run["online_s"] is not None for run in runs[system]):
            over = numbers.OVER_BUDGET.of(runs[system])
            keeps = over is not None and over.mean <= MAX_OVER  # the bound within budgets is for those that do
            metrics = numbers.ONLINE if keeps else numbers.ONLINE_ANY
            rows += numbers.metric_rows(ONLINE, system, runs[system], None, metrics)
    return Values(tuple(rows), (), settings(size.days, size.seeds, runs))


def degradations(group: str, published: Mapping[str, float | None], config: Config) -> Iterator[Value]:
    """Yield the loss of the reference workload in a wave of seven; the oracle is not played in waves."""
    seeds = reclaim_bursts.seeds_of(config)
    cases = {system: [Wave(system, MOST, SHORT_S, False, seed) for seed in seeds] for system in published}
    for system, some in reclaim_bursts.waves_of(cases, config).items():
        lacking = [100.0 * each["degradation"] for each in some]
        note = "of a workload that asks for the reserve, beside seven migrations"
        yield mean_row(group, system, DEGRADATION, "%", lacking, note, published=published[system])


def has_expectation(runs: Sequence[Result]) -> bool:
    """Return whether the mean loss to emergencies, over their moments, is known for all of these."""
    return all(run["expected_emergencies_s"] is not None for run in runs)


def _ratios(runs: Mapping[str, Sequence[Result]]) -> Iterator[Value]:
    for other in runs:
        if other == OURS:
            continue
        printed = PUBLISHED.get(other, {}).get("work loss")
        published = PUBLISHED[OURS]["work loss"] / printed if printed else None
        pair = (OURS, other)
        for metric in (numbers.WORK_LOSS, numbers.EXPECTED, numbers.LOST_TIME):
            if metric is not numbers.EXPECTED or has_expectation(runs[other]):
                yield from numbers.difference_row(RATIOS, metric, pair, runs[OURS], runs[other])
        yield from numbers.ratio_row(RATIOS, numbers.WORK_LOSS, pair, runs[OURS], runs[other], published)
        down = PUBLISHED.get(other, {}).get("downtime")
        published = PUBLISHED[OURS]["downtime"] / down if down else None
        yield from numbers.ratio_row(RATIOS, numbers.DOWNTIME, pair, runs[OURS], runs[other], published)


def settings(days: float, seeds: Sequence[int], runs: Mapping[str, Sequence[Result]]) -> dict[str, str]:
    """Return the settings of campus runs; other claims use them, too."""
    some = next(iter(runs.values()))
    events = sum(len(each["interruptions"]) for each in some)
    broken = sorted({rule for each in runs.values() for run in each for rule in run["broken"]})
    return {
        "runs": f"{len(seeds)} seeds of {days:g} days: {sum(each['submitted'] for each in some)} jobs, {events} of them "
        f"interrupted under {next(iter(runs))}",
        "promises broken": ", ".join(broken) or "none, in any run",
        "campus": "campus54, and the owners and jobs of `experiments.inputs.traces.paper_campus`, the same for every system",
        "world": "virtual campus: the live coordinator's and agents' cores over a fluid network",
    }


def checks(values: Values) -> Iterator[Check]:
    """Yield the checks of the paper's statements, from the values alone."""
    for other in WORSE:
        text = f"ReclaimNet loses less work than {label(other)}"
        yield below(ClaimKind.ORDERING, text, values.get(RATIOS, f"{OURS} - {other}", "work loss"), 0.0)
        ratio = values.get(RATIOS, f"{OURS} / {other}", "work loss")
        if ratio is not None:  # over a system that loses nothing there is none
            text = f"{ratio.system.replace(OURS, 'ReclaimNet')}: the work loss is the printed part"
            yield near(ClaimKind.VALUE, text, ratio, ratio.published or 1.0, 0.1)
    to_schedule = values.get(RATIOS, f"{OURS} / {ORACLE}", "work loss")
    text = "ReclaimNet loses at most 8 % more work than the oracle's schedule, which was played"
    yield at_most(ClaimKind.VALUE, text, to_schedule, NEAR_ORACLE)
    to_online = values.get(ONLINE, OURS, numbers.OVER_ONLINE.quantity)
    text = "emergencies, in the mean, and pauses cost ReclaimNet at most 1.5 times the least of any on-line schedule"
    check = at_most(ClaimKind.BEYOND, text, to_online, NEAR_ONLINE)
    beside = [values.get(ONLINE, OURS, each.quantity) for each in numbers.ONLINE]
    if None not in beside:
        told = "; ".join(f"{row.quantity} {row.measured:.4g} {row.unit}" for row in beside if row is not None)
        check = replace(check, detail=f"{check.detail} ({told})")
    yield check
    success = values.get(GROUP, OURS, "success")
    yield above(ClaimKind.VALUE, "ReclaimNet hands over more than 91 % of jobs under notice", success, 91.0)
    for system, cells in PUBLISHED.items():
        for quantity, tolerance in CELLS.items():
            if quantity in cells and (system, quantity) not in NOT_JUDGED:
                text = f"{label(system)}: {quantity} of {cells[quantity]:g}, as printed"
                cell = values.get(GROUP, system, quantity)
                yield near(ClaimKind.VALUE, text, cell, cells[quantity], tolerance)
    for apart in values.rows:
        if apart.group != RATIOS or not apart.system.startswith(f"{OURS} - "):
            continue
        other = apart.system.removeprefix(f"{OURS} - ")
        if apart.quantity == numbers.LOST_TIME.quantity:
            text = f"ReclaimNet loses less GPU time in all than {label(other)}"
            yield below(ClaimKind.BEYOND, text, apart, 0.0)
            continue
        if apart.quantity == numbers.EXPECTED.quantity:
            text = f"ReclaimNet loses less work to emergencies, in the mean over their moments, than {label(other)}"
            yield below(ClaimKind.BEYOND, text, apart, 0.0)
            continue
        if other not in (*WORSE, ORACLE):
            yield below(ClaimKind.BEYOND, f"ReclaimNet loses less work than {label(other)}", apart, 0.0)


def panels(group: str) -> tuple[Panel, ...]:
    """Return a panel for each column of a table."""
    return (
        Panel("work loss", "Work loss", (group,), log="x"),
        Panel("lost GPU time", "Lost GPU time in all", (group,), log="x"),
        Panel("downtime", "Median downtime after a notice, s", (group,), log="x"),
        Panel("success", "Handed over without loss, % of jobs", (group,)),
        Panel(DEGRADATION, "Research not served, 7 at once, %", (group,)),
        Panel("utilisation", "Useful GPU time, %", (group,)),
    )


PANELS = panels(GROUP)
