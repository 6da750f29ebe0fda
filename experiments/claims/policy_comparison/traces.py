"""Recorded owners: the ranking of `reclaimnet` on each record, with each notice, with and without a storage server.

A case is one record under one notice and one storage; `ranking` defines the ranking. Two rules of `reclaimnet` were
chosen on two of the published records (`LIMITS`). Two weeks of one record are few departures, and two seeds decide
little. So the differences are also taken over all records (`ALL`). Each single record gives one number, the mean over
its cases and seeds, and the interval is over the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from experiments.claims.framework.claim import Check, Config
from experiments.claims.framework.panels import Panel
from experiments.claims.framework.rows import mean_row, paired_row
from experiments.claims.framework.runs import gather
from experiments.claims.framework.values import Value, Values
from experiments.claims.paper_a.table3 import OURS
from experiments.claims.policy_comparison import ranking
from experiments.claims.policy_comparison.owner_records import LOAD, MAX_DAYS, QUICK_DAYS, TraceCase, TraceRun, cases
from experiments.claims.policy_comparison.ranking import JUDGED, QUANTITIES, WORST, numbers
from experiments.runtime.tasks import Result
from topologies.errors import SpecError

FULL_SEEDS, QUICK_SEEDS = 10, 2
# the group of differences over all records
ALL = "all records"


def run(config: Config) -> Values:
    """Run every system in every case. SpecError: no folder, no record in it, or no such case."""
    if config.records is None:
        raise SpecError("--trace", "", "a folder with records of owners")
    seeds = config.seeds_of(QUICK_SEEDS, FULL_SEEDS)
    most_days = QUICK_DAYS if config.quick else MAX_DAYS
    found_cases = cases(config.records, config.only)
    systems = dict.fromkeys((*ranking.systems(), *config.systems))
    wanted = {
        (case.name, system): [TraceRun(case, system, seed, most_days).task for seed in seeds]
        for case in found_cases
        for system in systems
    }
    found = gather(wanted, config)
    values = Values((*ranking.rows(found), *_over_records(found_cases, found)))
    settings = {
        **ranking.told(values, found),
        "jobs": f"paper A's payloads and loss budgets, {LOAD:.0%} of the GPU time that owners lend",
    }
    return replace(values, settings=settings)


def _over_records(cases: Sequence[TraceCase], found: Mapping[tuple[str, str], Sequence[Result]]) -> Iterator[Value]:
    """Yield differences between `reclaimnet` and each other row over all records of one file.

    Records of several files are left out: they hold the same owners. Records have the same seeds, as campuses do
    (`campuses`), but a seed has little common effect in two of them: the number and length of jobs follow the record,
    and so do departures. Over ten seeds of seven records, the differences of two records correlated by -0.13 to 0.06 in
    the mean of all pairs, for every row. So the interval takes records for independent. It does not include what zones
    of one cloud, recorded in one week, have in common.
    """
    record_of = {case.name: case.record.name for case in cases if len(case.record.files) == 1}
    of_record: dict[str, dict[str, list[Result]]] = {}
    for (case, system), runs in found.items():
        if case in record_of:
            of_record.setdefault(record_of[case], {}).setdefault(system, []).extend(runs)
    if len(of_record) < 2:
        return
    systems = next(iter(of_record.values()))
    every = {system: [run for some in of_record.values() for run in some[system]] for system in systems}
    yield from ranking.constraint_rows(ALL, every)
    for quantity in JUDGED:
        unit, _ = QUANTITIES[quantity]
        mean = {s: [fmean(numbers(quantity, some[s])) for some in of_record.values()] for s in systems}
        for system in systems:
            yield mean_row(ALL, system, quantity, unit, mean[system], "of a run; the interval is over records")
        for other in systems:
            if other != OURS:
                yield paired_row(ALL, f"{OURS} - {other}", quantity, unit, mean[OURS], mean[other])


def checks(values: Values) -> Iterator[Check]:
    """Yield the ranking of `reclaimnet` in each case and over all records, and the price of constraints that others break."""
    return ranking.checks(values, values.groups())


PANELS = tuple(Panel(quantity, quantity, (ALL,)) for quantity in (*JUDGED, WORST))
