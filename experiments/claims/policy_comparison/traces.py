"""Recorded owners: the ranking of `reclaimnet` on each record, with each notice, with and without a storage server.

A case is one record under one notice and one storage; `ranking` defines the ranking. Two rules of `reclaimnet` were
chosen on two of the published records (`LIMITS`). Two weeks of one record are few departures, and two seeds decide
little. So the differences are also taken over all records (`ALL`). Each single record gives one number, the mean over
its cases and seeds, and the interval is over the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from experiments.claims.framework.claim import Check, Claim, Config
from experiments.claims.framework.rows import mean_row, paired_row
from experiments.claims.framework.values import Value, Values
from experiments.claims.paper_a.campus_runs import gather
from experiments.claims.paper_a.table3 import OURS
from experiments.claims.policy_comparison import owner_records, ranking
from experiments.claims.policy_comparison.owner_records import (
    LOAD,
    MAX_DAYS,
    QUICK_DAYS,
    TraceCase,
    TraceRun,
    cases,
)
from experiments.claims.policy_comparison.ranking import EXPECTED, JUDGED, QUANTITIES, WORST, numbers
from experiments.runtime.tasks import Result
from topologies.errors import SpecError

FULL_SEEDS, QUICK_SEEDS = 10, 2
# the group of differences over all records
ALL = "all records"

CLAIM_TEXT = (
    "With hazards, bandwidth and deadlines a system loses less than without: on owners that others recorded, too, ReclaimNet is "
    "first in work lost and in lost GPU time, among systems that leave research 97 % of what it asks for "
    "and keep loss budgets (intervals of at most 2 L_max) as ReclaimNet does."
)
LIMITS = (
    "What any paper prints: no paper has played these. The records say when machines came and went; jobs, their payloads and "
    "the network are those of paper A's campus, at a load of half of what is lent, and the zones of a region are not its "
    "buildings. Others' traffic is a load that does not yield, and the coordinator is told what it asks for of every link. A "
    "cloud's machine that leaves is replaced by another, here its host comes back with its disk. While a whole zone is away "
    "every job waits, whatever a system does: that is most of the lost GPU time. Two weeks of one place are one history: seeds "
    "change which host leaves, and the jobs, not when machines leave. Two rules of ReclaimNet, recoveries before checkpoints and "
    "rescues to disks, were chosen on two of the published records, us-east-2b and us-west-2a of 16 machines "
    "(docs/design-decisions.md): over the other five less is decided (docs/measured.md). Rows meet the same jobs and do not "
    "get the same work done of them in a run, so that those that wait or lose more have less to lose, a quarter in some cases "
    "(useful GPU time stands beside what is lost). A job that waits when a run ends has lost nothing yet, which spares "
    "no-migration a little."
)


def run(config: Config) -> Values:
    """Run every system in every case. SpecError: no folder, no record in it, or no such case."""
    if config.records is None:
        raise SpecError("--trace", "", "a folder with records of owners")
    count = config.seeds or (QUICK_SEEDS if config.quick else FULL_SEEDS)
    most_days = QUICK_DAYS if config.quick else MAX_DAYS
    found_cases = cases(config.records, config.only)
    systems = dict.fromkeys((*ranking.systems(), *config.systems))
    wanted = {
        (case.name, system): [TraceRun(case, system, seed, most_days).task for seed in range(1, count + 1)]
        for case in found_cases
        for system in systems
    }
    found = gather(wanted, config, (owner_records,))
    values = Values((*ranking.rows(found), *_over_records(found_cases, found)))
    settings = {
        **ranking.told(values, found),
        "jobs": f"paper A's payloads and loss budgets, {LOAD:.0%} of the GPU time that owners lend",
    }
    return replace(values, settings=settings)


def _over_records(
    cases: Sequence[TraceCase], found: Mapping[tuple[str, str], Sequence[Result]]
) -> Iterator[Value]:
    """Yield differences between `reclaimnet` and each other row over all records of one file.

    Records of several files are left out: they hold the same owners. Records have the same seeds, as campuses do
    (`campuses`), but a seed has little common effect in two of them: the number and length of jobs follow the record,
    and so do departures. Over ten seeds of seven records the differences of two records had correlations of -0.13 to
    0.06 in the mean of all pairs, whatever the row. So the interval takes records for independent. It does not include
    what zones of one cloud, recorded in one week, have in common.
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
        if quantity == EXPECTED:  # of owners without a law
            continue
        unit, _ = QUANTITIES[quantity]
        mean = {s: [fmean(numbers(quantity, some[s])) for some in of_record.values()] for s in systems}
        for system in systems:
            yield mean_row(
                ALL, system, quantity, unit, mean[system], "of a run; the interval is over records"
            )
        for other in systems:
            if other != OURS:
                yield paired_row(ALL, f"{OURS} - {other}", quantity, unit, mean[OURS], mean[other])


def checks(values: Values) -> Iterator[Check]:
    """Yield the ranking of `reclaimnet` in each case and over all records, and the price of constraints that others break."""
    return ranking.checks(values, values.groups())


def draw(values: Values, path: Path) -> None:
    """Draw each system's loss in each case, over that of `reclaimnet`."""
    names = [group for group in values.groups() if group != ALL]
    ranking.draw(values, names, path, "Recorded owners: what is lost, over ReclaimNet")


CLAIM = Claim(
    name="traces",
    paper="Recorded owners",
    title="The systems on owners that others recorded",
    text=CLAIM_TEXT,
    does_not_prove=LIMITS,
    headline=(*(each for each in QUANTITIES if each != EXPECTED), WORST),
    run=run,
    draw=draw,
    checks=checks,
)
