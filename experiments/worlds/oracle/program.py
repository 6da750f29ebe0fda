"""A window as a mixed-integer linear program (paper A, Appendix C-D, baseline B6), solved by HiGHS.

In the paper's program x_{j,t,d} = 1 where job j is checkpointed at time t to destination d. It minimises the rollback
sum_j sum_{e_j} Delta^rb_{e_j}(x) under three constraints: one destination a job and time (sum_d x <= 1); links
(sum_j r_j x <= w(e, t)); and for announced reclaims T_mig(j, t, d) <= tau (eq. 10). Its printed form leaves open the reclaims
that hit a moved job, the places with a GPU for it, and the rates r_j. Here:

sets         jobs j; stays i (a host from when it is lent until its owner has it); the ways h out of a stay that ends under a job
             (`choices`): destination, rate, times of the checkpoints, or a migration within the notice. T_mig <= tau holds for
             every migration on the list, and no other is on it.
variables    x_{j,h} in {0,1}: job j takes the way h, which fixes t, d and r of the paper's x.
objective    min sum cost_h x_{j,h}. cost_h is the rollback, from the last snapshot that is complete until the end of
             the stay (0 of a migration). Added is a thousandth of the downtime, which only decides between equals.
constraints  one way out of each end (sum_d x <= 1; the reclaims that hit a job are those of the hosts where it is):
                                              sum_{h from i} x_{j,h} = sum_{h to i} x_{j,h} + [j is on i at first];
             a GPU for every job, at each moment t at which one may come to stay i:
                                              sum of jobs that come to i by t and are not over  <=  GPUs of i;
             links, at each moment t at which a transfer on link l may begin, or w changes; where checkpoints may borrow, once
             for all transfers and once for migrations alone:
                                              sum_{h on l at t} r_h x_{j,h}  <=  w(l, t)

What is relaxed: t and r are from finite lists; a job's end does not depend on its way (it is counted late, so that GPUs
are not reserved twice); a transfer's time has every draw at its worst. Loads rise only where a transfer begins, and
shares fall only where an epoch of the background does. So the rows for those moments are all that the links need: there
are no time slots. What is kept, as in the paper: no job is moved before the owner of its host has given notice. The
bound is a bound of all plans from these lists.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import inf

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from experiments.worlds.oracle.future import LinkBudgets, Stay
from experiments.worlds.oracle.problem import Booking, Node, Window, WindowProblem
from topologies.spec import DirectedLink

NEARLY = 1e-9  # of a capacity: rounding of rates
NOTHING = 1e-9  # an objective below this is none
Row = tuple[dict[int, float], float, float]  # coefficients by variable, lower and upper bound


def solve(problem: WindowProblem, time_limit_s: float, gap: float = 1e-6) -> Window:
    """Find the best plan within `time_limit_s`, proved to within a relative `gap` if there is time.

    Where HiGHS has found nothing by then, every job keeps to its stay and loses its work: see `Window.status`.
    """
    choices = problem.handovers
    if not choices:
        return Window(())
    rows = [*_ways(problem), *_gpus(problem), *_links(problem, problem.budgets.together, of_migrations=False)]
    if problem.budgets.migrations is not problem.budgets.together:
        rows += _links(problem, problem.budgets.migrations, of_migrations=True)
    values = [value for coefficients, _, _ in rows for value in coefficients.values()]
    columns = [column for coefficients, _, _ in rows for column in coefficients]
    starts = np.cumsum([0, *(len(coefficients) for coefficients, _, _ in rows)])
    matrix = csr_array((values, columns, starts), shape=(len(rows), len(choices)))
    constraint = LinearConstraint(matrix, [low for _, low, _ in rows], [high for _, _, high in rows])
    result = milp(
        np.array([choice.cost_s for choice in choices]),
        integrality=np.ones(len(choices)),
        bounds=Bounds(0.0, 1.0),
        constraints=constraint if rows else (),
        options={"time_limit": time_limit_s, "mip_rel_gap": gap},
    )
    status = "optimal" if result.status == 0 else "time limit"
    if result.x is not None:
        found = tuple(choice for choice, x in zip(choices, result.x, strict=True) if x > 0.5)
    else:
        status, there = "nothing", {(runner.name, runner.stay) for runner in problem.runners}
        found = tuple(way for way in choices if way.holder is None and (way.job, way.stay) in there)
    objective_s = sum(way.cost_s for way in found)
    # no cost is negative, so neither is a bound
    proved = result.mip_dual_bound is not None and np.isfinite(result.mip_dual_bound)
    bound_s = min(max(0.0, result.mip_dual_bound) if proved else 0.0, objective_s)
    left = (objective_s - bound_s) / objective_s if objective_s - bound_s > NOTHING else 0.0
    return Window(found, objective_s, bound_s, left, status)


# ---------------------------------------------------------------- the constraints


def _ways(problem: WindowProblem) -> Iterator[Row]:
    """Yield rows for ways: a job leaves each stay that ends under it in one way."""
    balance: dict[Node, dict[int, float]] = {node: {} for node in problem.nodes}
    for number, choice in enumerate(problem.handovers):
        balance[choice.job, choice.stay][number] = 1.0
        if choice.to is not None and (choice.job, choice.to) in balance:
            balance[choice.job, choice.to][number] = -1.0
    at_first = {(runner.name, runner.stay) for runner in problem.runners}
    for node in sorted(balance, key=lambda node: (node[0], node[1].until_s, node[1].host)):
        there = 1.0 if node in at_first else 0.0
        yield balance[node], there, there


def _gpus(problem: WindowProblem) -> Iterator[Row]:
    """Yield rows for GPUs: one for every job, at each moment at which one may come to a stay."""
    finish_s = {runner.name: runner.finish_s for runner in problem.runners}
    coming: dict[Stay, list[tuple[int, float, float]]] = defaultdict(list)
    for number, choice in enumerate(problem.handovers):
        if (stay := choice.to) is not None:
            coming[stay].append((number, choice.leaves_s, min(finish_s[choice.job], stay.until_s)))
    for stay in sorted(coming, key=lambda stay: (stay.host, stay.from_s)):
        held = [(r.since_s, min(r.finish_s, stay.until_s)) for r in problem.runners if r.stay == stay]
        seen: set[tuple[frozenset[int], int]] = set()
        for at_s in sorted({from_s for _, from_s, _ in coming[stay]} | {from_s for from_s, _ in held}):
            there = frozenset(n for n, from_s, until_s in coming[stay] if from_s <= at_s < until_s)
            free = problem.gpus[stay.host] - sum(from_s <= at_s < until_s for from_s, until_s in held)
            if len(there) > free and (there, free) not in seen:
                seen.add((there, free))
                yield dict.fromkeys(sorted(there), 1.0), -inf, float(max(0, free))


def _links(problem: WindowProblem, budgets: LinkBudgets, *, of_migrations: bool) -> Iterator[Row]:
    """Yield rows for links, in parts of their budgets, at each moment at which a load may rise or a budget fall."""
    users: dict[DirectedLink, list[tuple[int, Booking]]] = defaultdict(list)
    for number, choice in enumerate(problem.handovers):
        for taken in choice.bookings:
            for link in taken.links if taken.migrates or not of_migrations else ():
                users[link].append((number, taken))
    for link in sorted(users, key=str):
        known = [each for each in problem.bookings if link in each.links and (each.migrates or not of_migrations)]
        moments: set[float] = set()
        for each in (*(taken for _, taken in users[link]), *known):
            moments |= {each.from_s, *budgets.changes_s(each.from_s, each.until_s)}
        seen: set[tuple[tuple[int, float], ...]] = set()
        for at_s in sorted(moments):
            share = max(1.0, budgets.path((link,), at_s))
            on = {n: r.rate_bytes_per_s / share for n, r in users[link] if r.holds_at(at_s)}
            used = sum(r.rate_bytes_per_s for r in known if r.holds_at(at_s)) / share
            # the most that these can be together: a job takes one way out of a place at a time
            most: dict[str, float] = defaultdict(float)
            for number, part in on.items():
                most[problem.handovers[number].job] = max(most[problem.handovers[number].job], part)
            together = tuple(on.items())
            spare = used <= 0.0 and (together in seen or sum(most.values()) <= 1.0 + NEARLY)
            if on and not spare:
                seen.add(together)
                yield on, -inf, max(0.0, 1.0 + NEARLY - used)
