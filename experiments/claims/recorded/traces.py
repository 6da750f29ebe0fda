"""Recorded owners: is ours first, on each record, with each notice, with and without a storage server?

A case is one record under one notice and one storage. In each, the rows of Table III meet the same owners and jobs, seed by
seed, and ours is compared with every other row in work lost and in lost GPU time. It is *first* where it loses less than
every other with the whole 95 % interval of the paired difference, *behind* those that lose less than it with theirs, and *not
distinguishable from first* otherwise: there more seeds would say. Nothing of the systems was fitted to a record.

A system that takes research's bandwidth may lose less for it, and is no rival. Whether a row keeps the constraint is measured in
the very runs that are compared, whatever the row is called: it breaks it in a case where a research flow lacked more than 3 %
(`MOST_LOST`) of what it asked for in an hour of one of its runs. An hour of one flow, because the mean over all links and days
hides an evening of one building: by that mean (`research lost`) every row would keep it. (What the scavenger class is held to
live is a second.) What ours loses more than rows that break it is the *price* of the constraint, in checks of their own. So every
row is in one of the two checks of each case, and the settings say how ours would stand among all rows.

Two weeks of one record are few departures, and two seeds decide little. So the differences are also taken over all records
(`ALL`): of each single record one number, the mean over its cases and seeds, and the interval over the records.

As in Table III, ours meets the row with one interval for all jobs (TV-FI), which takes a checkpoint to cost its write, at that
price (`EQUAL_PRICE`). What ours is without second copies stands beside it (one-copy), and what it is where it takes nothing that
research asks for (research-whole); none of these rows makes ours first or behind anything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from experiments.claims.framework.claim import Check, Claim, ClaimKind, ClaimOutcome, Config
from experiments.claims.framework.pictures import INK, canvas, colour, dress
from experiments.claims.framework.rows import exact_row, mean_row, paired_row
from experiments.claims.framework.values import Value, Values
from experiments.claims.paper_a.campus_runs import run_tasks
from experiments.claims.paper_a.table3 import AT_EQUAL_PRICE, BESIDE, EQUAL_PRICE, OURS, label
from experiments.claims.recorded import owner_records
from experiments.claims.recorded.owner_records import (
    LOAD,
    MOST_DAYS,
    QUICK_DAYS,
    TraceCase,
    TraceRun,
    cases,
    play,
    systems,
)
from experiments.results.lost_time import LostPart
from experiments.runtime.tasks import Result, Task
from topologies.errors import SpecError

FULL_SEEDS, QUICK_SEEDS = 10, 2
WORK, LOST = "work lost", "lost GPU time"
# quantity -> (unit, what one run has of it)
QUANTITIES: dict[str, tuple[str, Callable[[Result], float]]] = {
    WORK: ("GPU-h", lambda run: run["work_lost_h"]),
    LOST: ("GPU-h", lambda run: run["lost_h"]),
    "useful GPU time": ("GPU-h", lambda run: run["useful_h"]),
    "bytes moved": ("GB", lambda run: run["moved_gb"]),
    "jobs finished": ("", lambda run: run["finished"]),
    "research lost": ("%", lambda run: 100.0 * run["research"]["lost"]),
    "research degraded": ("% of time", lambda run: 100.0 * run["research"]["degraded"]),
    "below research's reserve": ("% of time", lambda run: 100.0 * run["research"]["below"]),
    "short of research's reserve": ("GB", lambda run: run["research"]["short_gb"]),
}
JUDGED = (WORK, LOST)
# of what a research flow asks for in an hour, %: it may lose that much ("under 3 %", paper A)
MOST_LOST = 3.0
# the group of differences over all records
ALL = "all records"
WORST = "research lost in its worst hour"
# times what ours loses: beyond, the picture does not tell systems apart
FARTHEST = 3.0

CLAIM_TEXT = (
    "With hazards, bandwidth and deadlines a system loses less than without: on owners that others recorded, too, ours is first "
    "in work lost and in lost GPU time, among systems that leave research 97 % of what it asks for."
)
LIMITS = (
    "What any paper prints: no paper has played these. The records say when machines came and went; jobs, their payloads and "
    "the network are those of paper A's campus, at a load of half of what is lent, and the zones of a region are not its "
    "buildings. Others' traffic is a load that does not yield, and the coordinator is told what it asks for of every link. "
    "A cloud's machine that leaves is replaced by another, here its host comes back with its disk. While a whole zone "
    "is away every job waits, whatever a system does: that is most of the lost GPU time. Against TV-FI ours is judged by the row "
    "writes-stop-jobs, which prices a checkpoint as TV-FI does. Two weeks of one place are "
    "one history: seeds change which host leaves, and the jobs, not when machines leave."
)


def run(config: Config) -> Values:
    """Every system in every case. SpecError: no folder, no record in it, or no such case."""
    if config.records is None:
        raise SpecError("--traces", "", "a folder with records of owners")
    count = config.seeds or (QUICK_SEEDS if config.quick else FULL_SEEDS)
    most_days = QUICK_DAYS if config.quick else MOST_DAYS
    found_cases = cases(config.records, config.only)
    wanted = {
        (case, system): [TraceRun(case, system, seed, most_days) for seed in range(1, count + 1)]
        for case in found_cases
        for system in dict.fromkeys((*systems(), *BESIDE, *config.systems))
    }
    tasks = [Task(each.key, play, (each,)) for some in wanted.values() for each in some]
    results = run_tasks(tasks, config, (owner_records,))
    found = {key: [results[each.key] for each in some] for key, some in wanted.items()}
    rows = [value for case in found_cases for value in _numbers(case, found)]
    values = Values((*rows, *_over_records(found)))
    runs = [run for some in found.values() for run in some]
    ours = [run for (_, system), some in found.items() if system == OURS for run in some]
    settings = {
        "runs": f"{len(found_cases)} cases of {count} seeds: {sum(run['submitted'] for run in ours)} jobs, "
        f"{sum(run['interruptions'] for run in ours)} interruptions under ours, {len(runs)} runs",
        "ours": "; ".join(f"{quantity}: {_standings(values, quantity)}" for quantity in JUDGED),
        "constraint": f"a research flow lacks at most {MOST_LOST:g} % of what it asks for in any hour of any run; broken by "
        + (_told_breaches(values) or "no row"),
        "were rows rivals that break it": "; ".join(
            f"{quantity}: {_standings(values, quantity, all_rows=True)}" for quantity in JUDGED
        ),
        "promises broken": ", ".join(sorted({rule for run in runs for rule in run["broken"]}))
        or "none, in any run",
        "jobs": f"paper A's payloads and loss budgets, {LOAD:.0%} of the GPU time that owners lend",
        "world": "virtual campus: the live coordinator's and agents' cores over a fluid network",
    }
    return replace(values, settings=settings)


def _standings(values: Values, quantity: str, *, all_rows: bool = False) -> str:
    """The number of cases in which ours is first, and in which it is not."""
    cases = [group for group in values.groups() if group != ALL]
    outcomes = Counter(standing(values, case, quantity, all_rows=all_rows).outcome for case in cases)
    first, level, behind = (
        outcomes[each] for each in (ClaimOutcome.HOLDS, ClaimOutcome.UNDECIDED, ClaimOutcome.FAILS)
    )
    return f"first in {first} of {len(cases)} cases, not distinguishable from first in {level}, behind in {behind}"


def _told_breaches(values: Values) -> str:
    """Rows that break the constraint, in how many cases, and what keeping it costs ours there in the mean."""
    found: dict[str, list[float]] = {}
    for case in values.groups():
        for (_, other), pair in _pairs(values, case, LOST).items() if case != ALL else ():
            if not keeps(values, case, other):
                found.setdefault(other, []).append(pair.ours)
    return "; ".join(
        f"{label(other)} in {len(apart)} cases, where ours loses {sum(apart) / len(apart):+.3g} GPU-h of GPU time"
        for other, apart in sorted(found.items())
    )


def _numbers(case: TraceCase, found: Mapping[tuple[TraceCase, str], Sequence[Result]]) -> Iterator[Value]:
    of_case = {system: runs for (other, system), runs in found.items() if other == case}
    for system, runs in of_case.items():
        for quantity, (unit, of) in QUANTITIES.items():
            yield mean_row(case.name, system, quantity, unit, [of(run) for run in runs], "of a run")
        worst = 100.0 * max(run["research"]["worst"] for run in runs)
        yield exact_row(case.name, system, WORST, "%", worst, "of what a flow asks for, in any run")
        for part in LostPart:
            hours = [run["parts_h"][part] for run in runs]
            words = part.replace("_", " ")
            yield mean_row(case.name, system, words, "GPU-h", hours, "part of the lost GPU time")
    for one, other in _compared(of_case):
        for quantity in JUDGED:
            unit, of = QUANTITIES[quantity]
            pair = ([of(run) for run in of_case[system]] for system in (one, other))
            yield paired_row(case.name, f"{one} - {other}", quantity, unit, *pair)


def _compared(systems: Iterable[str]) -> list[tuple[str, str]]:
    return [*((OURS, other) for other in systems if other != OURS), EQUAL_PRICE]


def _over_records(found: Mapping[tuple[TraceCase, str], Sequence[Result]]) -> Iterator[Value]:
    """What lies between ours and others over all records that are one file: those that are several hold the same owners."""
    of_record: dict[str, dict[str, list[Result]]] = {}
    for (case, system), runs in found.items():
        if len(case.record.files) == 1:
            of_record.setdefault(case.record.name, {}).setdefault(system, []).extend(runs)
    if len(of_record) < 2:
        return
    systems = next(iter(of_record.values()))
    for system in systems:
        worst = 100.0 * max(run["research"]["worst"] for some in of_record.values() for run in some[system])
        yield exact_row(ALL, system, WORST, "%", worst, "of what a flow asks for, in any run")
    for quantity in JUDGED:
        unit, of = QUANTITIES[quantity]
        mean = {s: [fmean(of(run) for run in some[s]) for some in of_record.values()] for s in systems}
        for system in systems:
            yield mean_row(
                ALL, system, quantity, unit, mean[system], "of a run; the interval is over records"
            )
        for one, other in _compared(systems):
            yield paired_row(ALL, f"{one} - {other}", quantity, unit, mean[one], mean[other])


def checks(values: Values) -> Iterator[Check]:
    """How ours stands in each case, and what it pays for what others break."""
    for case in values.groups():
        for quantity in JUDGED:
            yield standing(values, case, quantity)
            yield from price(values, case, quantity)


def keeps(values: Values, case: str, system: str) -> bool:
    """Whether a row kept the constraint in all its runs of a case."""
    return values.find(case, system, WORST).ours <= MOST_LOST


def _pairs(values: Values, case: str, quantity: str) -> dict[tuple[str, str], Value]:
    """(ours, another) -> the difference: the pairs that are judged."""
    pairs = {}
    for row in values.rows:
        if row.group == case and row.quantity == quantity and " - " in row.system:
            one, _, other = row.system.partition(" - ")
            if (one, other) == EQUAL_PRICE or (one == OURS and other not in (*BESIDE, EQUAL_PRICE[1])):
                pairs[one, other] = row
    return pairs


def price(values: Values, case: str, quantity: str) -> Iterator[Check]:
    """What ours loses more than rows that break the constraint: nothing (holds), something (fails), or it cannot be told."""
    apart = {
        other: row
        for (_, other), row in _pairs(values, case, quantity).items()
        if not keeps(values, case, other)
    }
    if not apart:
        return
    costs = any(row.low is not None and row.low > 0.0 for row in apart.values())
    is_free = all(row.high is not None and row.high < 0.0 for row in apart.values())
    outcome = ClaimOutcome.FAILS if costs else ClaimOutcome.HOLDS if is_free else ClaimOutcome.UNDECIDED
    told = "; ".join(
        f"{_named(other)}, which takes {values.find(case, other, WORST).ours:.3g} % of research in an hour ({_apart(row)})"
        for other, row in apart.items()
    )
    text = f"{case}: what research keeps costs ours nothing in {quantity}"
    yield Check(ClaimKind.PRICE, text, outcome, told)


def standing(values: Values, case: str, quantity: str, *, all_rows: bool = False) -> Check:
    """First: holds; behind another: fails; not distinguishable from first: undecided. Rivals are the rows that keep the
    constraint (`all_rows`: all); where ours breaks it, it is not first."""
    text = f"{case}: ours is first in {quantity}"
    pairs = _pairs(values, case, quantity)
    ours_are = dict.fromkeys(one for one, _ in pairs)
    if broken := [one for one in ours_are if not keeps(values, case, one)]:
        took = "; ".join(f"{one} {values.find(case, one, WORST).ours:.3g} %" for one in broken)
        words = f"ours takes more of research in an hour than {MOST_LOST:g} %: {took}"
        return Check(ClaimKind.ORDERING, text, ClaimOutcome.FAILS, words)
    apart = {other: row for (_, other), row in pairs.items() if all_rows or keeps(values, case, other)}
    if not apart:
        words = "no other row keeps the constraint: there is nothing to be first among"
        return Check(ClaimKind.ORDERING, text, ClaimOutcome.UNDECIDED, words)
    ahead = [other for other, row in apart.items() if row.low is not None and row.low > 0.0]
    behind = [other for other, row in apart.items() if row.high is not None and row.high < 0.0]
    level = [other for other in apart if other not in ahead and other not in behind]
    ours = values.find(case, OURS, quantity)
    mean = f"{ours.ours:.3g} {ours.unit}"
    if ahead:
        told = "; ".join(f"{_named(other)} ({_apart(apart[other])})" for other in ahead)
        return Check(ClaimKind.ORDERING, text, ClaimOutcome.FAILS, f"{mean}, behind {told}")
    if level:
        told = "; ".join(f"{_named(other)} ({_apart(apart[other])})" for other in level)
        words = f"{mean}, not distinguishable from first: {told}"
        return Check(ClaimKind.ORDERING, text, ClaimOutcome.UNDECIDED, words)
    next_best = min(apart, key=lambda other: -apart[other].ours)
    words = f"{mean}, first, before {_named(next_best)} ({_apart(apart[next_best])})"
    return Check(ClaimKind.ORDERING, text, ClaimOutcome.HOLDS, words)


def _named(other: str) -> str:
    return label(other) + (AT_EQUAL_PRICE if other == EQUAL_PRICE[1] else "")


def _apart(row: Value) -> str:
    return f"{row.ours:+.3g} [{row.low:+.3g}, {row.high:+.3g}]"


def draw(values: Values, path: Path) -> None:
    """Draw what the systems lose in each case, over what ours loses."""
    names = [group for group in values.groups() if group != ALL]
    rows = dict.fromkeys(row.system for row in values.rows if " - " not in row.system)
    height = 2.2 + 0.34 * len(names)
    with canvas(path, 1, len(JUDGED), (17.0, height), "Recorded owners: what is lost, over ours") as (
        figure,
        panels,
    ):
        for place, quantity in enumerate(JUDGED):
            axes = panels[0][place]
            for system in rows:
                points = []
                for y, case in enumerate(names):
                    own, other = values.find(case, OURS, quantity), values.get(case, system, quantity)
                    if other is not None and own.ours > 0.0 and other.ours > 0.0:
                        points.append((other.ours / own.ours, y))
                marker, size = ("|", 14) if system == OURS else ("o", 5)
                xs, ys = [min(x, FARTHEST) for x, _ in points], [y for _, y in points]
                axes.plot(
                    xs, ys, marker, color=colour(system), markersize=size, label=label(system), alpha=0.85
                )
            axes.axvline(1.0, color=INK, linewidth=0.8, zorder=0)
            axes.set_xlim(right=FARTHEST * 1.02)
            axes.set_yticks(range(len(names)), names if not place else [""] * len(names))
            axes.set_ylim(len(names) - 0.4, -0.6)
            dress(axes, f"over ours; {FARTHEST:g}: as much, or more", "", quantity, grid="x")
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower right", ncols=5)


CLAIM = Claim(
    name="traces",
    paper="Recorded owners",
    title="The systems on owners that others recorded",
    text=CLAIM_TEXT,
    does_not_prove=LIMITS,
    headline=(*QUANTITIES, WORST),
    run=run,
    draw=draw,
    checks=checks,
)
