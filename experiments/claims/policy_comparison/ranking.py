"""The ranking of `reclaimnet` among the rows of Table III, case by case, for every claim that compares rows.

A case is a campus and its owners. All rows meet the same owners and jobs, seed by seed. `reclaimnet` is compared with
every other row in work lost and in lost GPU time. It is *first* where it loses less than every other row, with the
whole 95 % interval of the paired difference. It is *behind* rows that lose less than it with the whole interval.
Otherwise it is *not distinguishable from first*, and more seeds could decide.

Two constraints are measured in the runs that are compared, for every row:

- *Research*: broken where a research flow lacked more than 3 % (`MAX_LOST`) of its demand in one hour of one run. The mean over
  all links and days (`research lost`) would hide an evening of one building: by that mean every row keeps the constraint.
- *Loss budgets*: intervals of at most 2 L_max (paper A's eq. 9). The checkpoint on its way comes on top of the cost of a
  reclaim, see `experiments.results.loss_budgets`. Broken where intervals were above that for more than 3 % (`MAX_OVER`)
  of jobs' time, and for more than under `reclaimnet`: where budgets do not fit the links together no row can keep all.

A row breaks a constraint when it is beyond it by more than one percentage point (`TOLERANCE`): a few seeds do not
measure such a share more exactly. A row that breaks one may lose less for it, so it is not ranked. The additional loss
of `reclaimnet` over such rows is the *price* of the constraints, in checks of their own. So every row is in one of the
two checks of each case.

The paper's row with one interval for all jobs (TV-FI) takes a checkpoint to cost its write. The same row at the price
of `reclaimnet` (one-interval) is ranked beside it. All other rows of the project's table that Table III does not have
are *relatives*: ablations and variants of `reclaimnet`, which are shown but not ranked. Three are always played:
without second copies (one-copy), without the allowance of research (research-whole), and with a smaller share of links
for checkpoints (share). Ablations (`reclaimnet+FIELD=VALUE`) are played when they are asked for. A user's own row is
ranked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from controller.core.policies.overrides import base_of
from controller.core.policies.table import POLICIES, SYSTEMS
from controller.user_policies import source_of
from experiments.claims.framework.claim import Check, ClaimKind, ClaimOutcome
from experiments.claims.framework.panels import label
from experiments.claims.framework.rows import mean_row, paired_row
from experiments.claims.framework.values import Value, Values
from experiments.claims.paper_a.table3 import OURS
from experiments.inputs.scenario.owners import HOUR_S
from experiments.results.loss_budgets import MAX_OVER
from experiments.results.lost_time import LostPart
from experiments.runtime.tasks import Result

ONE_INTERVAL = "one-interval"
RELATIVES = ("one-copy", "research-whole", "share")  # those that are always played
WORK, LOST = "work lost", "lost GPU time"
# quantity -> (unit, what one run has of it)
QUANTITIES: dict[str, tuple[str, Callable[[Result], float]]] = {
    WORK: ("GPU-h", lambda run: run["work_lost_s"] / HOUR_S),
    LOST: ("GPU-h", lambda run: sum(run["lost_time"].values()) / HOUR_S),
    "useful GPU time": ("GPU-h", lambda run: run["useful_s"] / HOUR_S),
    "bytes moved": ("GB", lambda run: run["checkpoint_gb"]),
    "jobs finished": ("", lambda run: run["finished"]),
    "research lost": ("%", lambda run: 100.0 * run["research"]["lost"]),
}
JUDGED = (WORK, LOST)
# of what a research flow asks for in an hour, %: it may lose that much ("under 3 %", paper A)
MAX_LOST = 3.0
WORST = "research lost in its worst hour"
OVER = "intervals above 2 L_max"
# percentage points: a row that is nearer to a limit than that counts as keeping it
TOLERANCE = 1.0


def systems() -> list[str]:
    """Return the rows of Table III, and those that stand beside them."""
    return [*SYSTEMS, ONE_INTERVAL, *RELATIVES]


def numbers(quantity: str, runs: Sequence[Result]) -> list[float]:
    """Return each run's value of a quantity."""
    return [QUANTITIES[quantity][1](run) for run in runs]


def case_rows(case: str, of_case: Mapping[str, Sequence[Result]]) -> Iterator[Value]:
    """Yield each system's losses and shares in a case, and the paired differences from `reclaimnet`.

    `of_case`: the runs of each system, a seed each.
    """
    for system, runs in of_case.items():
        for quantity, (unit, _) in QUANTITIES.items():
            yield mean_row(case, system, quantity, unit, numbers(quantity, runs), "of a run")
        for part in LostPart:
            hours = [run["lost_time"][part] / HOUR_S for run in runs]
            words = part.replace("_", " ")
            yield mean_row(case, system, words, "GPU-h", hours, "part of the lost GPU time")
    for other in of_case:
        for quantity in JUDGED if other != OURS else ():
            pair = (numbers(quantity, of_case[system]) for system in (OURS, other))
            yield paired_row(case, f"{OURS} - {other}", quantity, QUANTITIES[quantity][0], *pair)


def constraint_rows(case: str, of_case: Mapping[str, Sequence[Result]]) -> Iterator[Value]:
    """Yield each system's worst share taken from research, and the time with intervals above loss budgets (see `breach`)."""
    for system, runs in of_case.items():
        worst = 100.0 * max(run["research"]["worst"] for run in runs)
        yield Value(case, system, WORST, "%", worst, note="of what a flow asks for, in any run")
        over, planned = (sum(run["over_budget"][place] for run in runs) for place in range(2))
        share = 100.0 * over / max(planned, 1e-9)
        yield Value(case, system, OVER, "% of time", share, note="of jobs', in all runs")


def rows(found: Mapping[tuple[str, str], Sequence[Result]]) -> Iterator[Value]:
    """Yield `case_rows` and `constraint_rows` of every case."""
    for case in dict.fromkeys(case for case, _ in found):
        of_case = {system: runs for (other, system), runs in found.items() if other == case}
        yield from case_rows(case, of_case)
        yield from constraint_rows(case, of_case)


def told(values: Values, found: Mapping[tuple[str, str], Sequence[Result]]) -> dict[str, str]:
    """Return settings of these runs, the cases in which `reclaimnet` is first, and the rows that break a constraint."""
    cases = list(dict.fromkeys(case for case, _ in found))
    every = [run for runs in found.values() for run in runs]
    measured = [run for (_, system), runs in found.items() if system == OURS for run in runs]
    return {
        "runs": f"{len(cases)} cases: {sum(run['submitted'] for run in measured)} jobs, "
        f"{sum(len(run['interruptions']) for run in measured)} interruptions under ReclaimNet, {len(every)} runs",
        "reclaimnet": "; ".join(f"{quantity}: {_counted(values, cases, quantity)}" for quantity in JUDGED),
        "constraints": f"a research flow lacks at most {MAX_LOST:g} % of what it asks for in any hour of any run, and jobs' "
        f"intervals are above 2 L_max for at most {MAX_OVER:g} % of their time, or as long as under ReclaimNet, either to within "
        f"{TOLERANCE:g} %; broken by " + (_told_breaches(values, cases) or "no row"),
        "promises broken": ", ".join(sorted({rule for run in every for rule in run["broken"]})) or "none, in any run",
        "world": "virtual campus: the live coordinator's and agents' cores over a fluid network",
    }


def _counted(values: Values, cases: Sequence[str], quantity: str) -> str:
    """Return the number of cases in which `reclaimnet` is first, not distinguishable from first, and behind."""
    outcomes = Counter(standing(values, case, quantity).outcome for case in cases)
    first, level, behind = (outcomes[each] for each in (ClaimOutcome.HOLDS, ClaimOutcome.UNDECIDED, ClaimOutcome.FAILS))
    return f"first in {first} of {len(cases)} cases, not distinguishable from first in {level}, behind in {behind}"


def _told_breaches(values: Values, cases: Sequence[str]) -> str:
    """List rows that break a constraint, with the number of cases and the mean cost to `reclaimnet` of keeping it."""
    found: dict[str, list[float]] = {}
    for case in cases:
        for other, pair in _pairs(values, case, LOST).items():
            if breach(values, case, other):
                found.setdefault(other, []).append(pair.measured)
    return "; ".join(
        f"{label(other)} in {len(apart)} cases, where ReclaimNet loses {sum(apart) / len(apart):+.3g} GPU-h of GPU time"
        for other, apart in sorted(found.items())
    )


def checks(values: Values, cases: Sequence[str]) -> Iterator[Check]:
    """Yield the ranking of `reclaimnet` in each case, and the price of constraints that other rows break."""
    for case in cases:
        for quantity in JUDGED:
            yield standing(values, case, quantity)
            yield from price(values, case, quantity)


def breach(values: Values, case: str, system: str) -> str:
    """Return, in words, the constraints that a row broke in its runs of a case; empty if it kept both."""
    took, over = (values.find(case, system, each).measured for each in (WORST, OVER))
    broken = []
    if took > MAX_LOST + TOLERANCE:
        broken.append(f"takes {took:.3g} % of research in an hour")
    if over > max(MAX_OVER, values.find(case, OURS, OVER).measured) + TOLERANCE:
        broken.append(f"has intervals above 2 L_max for {over:.3g} % of jobs' time")
    return " and ".join(broken)


def is_relative(system: str) -> bool:
    """Return whether a row is a variant of `reclaimnet` that is not ranked: a system of neither paper, nor a user's."""
    is_known = base_of(system) in POLICIES
    return is_known and system not in (*SYSTEMS, ONE_INTERVAL) and not source_of(system)


def _pairs(values: Values, case: str, quantity: str) -> dict[str, Value]:
    """Map each ranked row to the additional loss of `reclaimnet` over it."""
    pairs = {}
    for row in values.rows:
        if row.group == case and row.quantity == quantity and row.system.startswith(f"{OURS} - "):
            other = row.system.removeprefix(f"{OURS} - ")
            if not is_relative(other):
                pairs[other] = row
    return pairs


def price(values: Values, case: str, quantity: str) -> Iterator[Check]:
    """Yield the check that `reclaimnet` loses no more than rows that break a constraint.

    It holds if nothing is lost, fails if something is, and is undecided otherwise.
    """
    pairs = _pairs(values, case, quantity)
    apart = {other: row for other, row in pairs.items() if breach(values, case, other)}
    if not apart:
        return
    costs = any(row.low is not None and row.low > 0.0 for row in apart.values())
    is_free = all(row.high is not None and row.high < 0.0 for row in apart.values())
    outcome = ClaimOutcome.FAILS if costs else ClaimOutcome.HOLDS if is_free else ClaimOutcome.UNDECIDED
    told = "; ".join(
        f"{label(other)}, which {breach(values, case, other)} ({_apart(row)})" for other, row in apart.items()
    )
    text = f"{case}: what research and loss budgets are left costs ReclaimNet nothing in {quantity}"
    yield Check(ClaimKind.BEYOND, text, outcome, told)


def standing(values: Values, case: str, quantity: str) -> Check:
    """Return the ranking of `reclaimnet` in a case as a check: first holds, behind another fails, otherwise undecided.

    It is ranked among the rows that keep the constraints. Where `reclaimnet` breaks one, it is not first.
    """
    text = f"{case}: ReclaimNet is first in {quantity}"
    if broken := breach(values, case, OURS):
        return Check(ClaimKind.ORDERING, text, ClaimOutcome.FAILS, f"ReclaimNet {broken}")
    pairs = _pairs(values, case, quantity)
    apart = {other: row for other, row in pairs.items() if not breach(values, case, other)}
    if not apart:
        words = "no other row keeps the constraints: there is nothing to be first among"
        return Check(ClaimKind.ORDERING, text, ClaimOutcome.UNDECIDED, words)
    ahead = [other for other, row in apart.items() if row.low is not None and row.low > 0.0]
    behind = [other for other, row in apart.items() if row.high is not None and row.high < 0.0]
    level = [other for other in apart if other not in ahead and other not in behind]
    next_best = max(apart, key=lambda other: apart[other].measured)
    outcome, words, beside = (
        (ClaimOutcome.FAILS, "behind", ahead)
        if ahead
        else (ClaimOutcome.UNDECIDED, "not distinguishable from first:", level)
        if level
        else (ClaimOutcome.HOLDS, "first, before", [next_best])
    )
    told = "; ".join(f"{label(other)} ({_apart(apart[other])})" for other in beside)
    measured = values.find(case, OURS, quantity)
    detail = f"{measured.measured:.3g} {measured.unit}, {words} {told}"
    return Check(ClaimKind.ORDERING, text, outcome, detail)


def _apart(row: Value) -> str:
    if row.low is None or row.high is None:
        return f"{row.measured:+.3g}, {row.seeds} seeds"
    return f"{row.measured:+.3g} [{row.low:+.3g}, {row.high:+.3g}]"
