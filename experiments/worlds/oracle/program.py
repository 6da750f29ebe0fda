"""One window as a mixed-integer linear program (paper A, Appendix C-D, baseline B6), solved by HiGHS.

The paper's program has x_{j,t,d} = 1 where job j is checkpointed at time t to destination d, minimises the rollback
sum_j sum_{e_j} Delta^rb_{e_j}(x), and holds three constraints: one destination a job and time (sum_d x <= 1), links
(sum_j r_j x <= w(e, t)), and for announced reclaims T_mig(j, t, d) <= tau (eq. 10). Its printed form leaves open which reclaims
hit a job that was moved, where there is a GPU for it, and what the rates r_j are. Here:

sets         jobs j; stays i (a host from when it is lent until its owner has it); the ways h out of a stay that ends under a job
             (`menu`): destination, rate, times of the checkpoints, or a migration within the notice. T_mig <= tau holds for
             every migration on the list, and no other is on it.
variables    y_{j,i} in {0,1}: a new job begins on stay i (or waits); x_{j,h} in {0,1}: job j takes the way h, which
             fixes t, d and r of the paper's x.
objective    min sum cost_h x_{j,h} + sum cost_i y_{j,i}. cost_h is the rollback, from the last snapshot that is complete until
             the end of the stay (0 of a migration), plus what the next stay costs if it ends beyond the window, plus a
             thousandth of the downtime, which only decides between equals.
constraints  one begin a new job:             sum_i y_{j,i} = 1
             one way out of each end (sum_d x <= 1, and the reclaims that hit a job are those of the hosts where it is):
                                              sum_{h from i} x_{j,h} = y_{j,i} + sum_{h to i} x_{j,h} + [j is on i at first]
             a GPU for everybody, at each moment t at which somebody may come to stay i:
                                              sum of those who come to i by t and are not over  <=  GPUs of i
             links, at each moment t at which a transfer on link l may begin, or w changes:
                                              sum_{h on l at t} r_h x_{j,h}  <=  w(l, t)

What is relaxed: t and r are from finite lists; a job's end does not depend on its way (it is counted late, so that GPUs are not
promised twice); a transfer's time has every draw at its worst. Loads rise only where a transfer begins and shares fall only where
an epoch of the background does, so the rows for those moments are all that the links need: there are no time slots. What is kept,
as in the paper: nobody is moved before his host's owner has said anything. The bound is a bound of all plans from these lists.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from time import process_time

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from experiments.worlds.oracle.availability import Stay
from experiments.worlds.oracle.greedy import greedy
from experiments.worlds.oracle.problem import (
    Choice,
    Entry,
    Handover,
    Reservation,
    WindowProblem,
)
from experiments.worlds.oracle.windows import WindowAnswer
from topologies.spec import DirectedLink

NEARLY = 1e-9  # of a capacity: rounding of rates
Row = tuple[dict[int, float], float, float]  # coefficients by variable, lower and upper bound


def solve(problem: WindowProblem, time_limit_s: float, gap: float = 1e-6) -> WindowAnswer:
    """The best plan found within `time_limit_s`, proved to within a relative `gap` if there is time. Never nothing: see
    `WindowAnswer.status`."""
    choices = problem.choices
    if not choices:
        return WindowAnswer((), 0.0, 0.0, "optimal", 0, 0)
    costs, rows = np.array([choice.cost_s for choice in choices]), list(_rows(problem))
    began_s = process_time()
    result = milp(
        costs,
        integrality=np.ones(len(choices)),
        bounds=Bounds(0.0, 1.0),
        constraints=_matrix(rows, len(choices)),
        options={"time_limit": time_limit_s, "mip_rel_gap": gap},
    )
    lasted_s = process_time() - began_s
    found = None if result.x is None else tuple(c for c, x in zip(choices, result.x, strict=True) if x > 0.5)
    bound_s = _bound_s(result.mip_dual_bound)
    status = "optimal" if result.status == 0 else "time limit"
    return _better(problem, found, bound_s, status, len(rows), lasted_s)


def _bound_s(bound: float | None) -> float:
    """No cost is negative, so neither is a bound."""
    return max(0.0, bound) if bound is not None and np.isfinite(bound) else 0.0


def _better(
    problem: WindowProblem,
    found: tuple[Choice, ...] | None,
    bound_s: float,
    status: str,
    rows: int,
    lasted_s: float,
) -> WindowAnswer:
    """What HiGHS found; if it was cut off, the simple plan where that is better."""
    objective_s = inf if found is None else sum(choice.cost_s for choice in found)
    if found is None or status != "optimal":
        simple = greedy(problem)
        simple_s = sum(choice.cost_s for choice in simple)
        if simple_s < objective_s:
            found, objective_s, status = simple, simple_s, "greedy"
    assert found is not None
    return WindowAnswer(
        found, objective_s, min(bound_s, objective_s), status, len(problem.choices), rows, lasted_s
    )


def _matrix(rows: Sequence[Row], variables: int) -> LinearConstraint | tuple[()]:
    if not rows:
        return ()
    lengths = [len(coefficients) for coefficients, _, _ in rows]
    values = [value for coefficients, _, _ in rows for value in coefficients.values()]
    columns = [column for coefficients, _, _ in rows for column in coefficients]
    starts = np.concatenate(([0], np.cumsum(lengths)))
    matrix = csr_array((values, columns, starts), shape=(len(rows), variables))
    return LinearConstraint(matrix, [low for _, low, _ in rows], [high for _, _, high in rows])


# ---------------------------------------------------------------- the constraints


def _rows(problem: WindowProblem) -> Iterator[Row]:
    yield from _begins(problem)
    yield from _flows(problem)
    yield from _gpus(problem)
    yield from _links(problem)


def _begins(problem: WindowProblem) -> Iterator[Row]:
    """One begin a new job."""
    of_job: dict[str, dict[int, float]] = defaultdict(dict)
    for number, entry in enumerate(problem.entries):
        of_job[entry.job][number] = 1.0
    for _, coefficients in sorted(of_job.items()):
        yield coefficients, 1.0, 1.0


def _flows(problem: WindowProblem) -> Iterator[Row]:
    """Who comes to a stay that ends under him leaves it, in one way."""
    rows: dict[tuple[str, Stay], dict[int, float]] = {node: {} for node in problem.nodes}
    for number, choice in enumerate(problem.choices):
        if isinstance(choice, Handover):
            rows[choice.job, choice.stay][number] = 1.0
        to = _to(choice)
        if to is not None and (choice.job, to) in rows:
            rows[choice.job, to][number] = -1.0
    at_first = {(runner.name, runner.stay) for runner in problem.runners}
    for node in sorted(rows, key=lambda node: (node[0], node[1].until_s, node[1].host)):
        there = 1.0 if node in at_first else 0.0
        yield rows[node], there, there


def _to(choice: Choice) -> Stay | None:
    return choice.stay if isinstance(choice, Entry) else choice.to


def _gpus(problem: WindowProblem) -> Iterator[Row]:
    """A GPU for everybody."""
    coming: dict[Stay, list[tuple[int, float, float]]] = defaultdict(list)
    for number, choice in enumerate(problem.choices):
        if choice.tenancy is not None:
            coming[choice.tenancy.stay].append((number, choice.tenancy.from_s, choice.tenancy.until_s))
    for stay in sorted(coming, key=lambda stay: (stay.host, stay.from_s)):
        taken = [t for t in problem.tenancies if t.stay == stay]
        yield from _gpus_of(coming[stay], problem, stay, [(t.from_s, t.until_s) for t in taken])


def _gpus_of(
    coming: Sequence[tuple[int, float, float]],
    problem: WindowProblem,
    stay: Stay,
    taken: Iterable[tuple[float, float]],
) -> Iterator[Row]:
    held = [(r.since_s, min(r.finish_s, stay.until_s)) for r in problem.runners if r.stay == stay]
    held += taken
    moments = sorted({from_s for _, from_s, _ in coming} | {from_s for from_s, _ in held})
    seen: set[tuple[frozenset[int], int]] = set()
    for at_s in moments:
        there = frozenset(number for number, from_s, until_s in coming if from_s <= at_s < until_s)
        free = problem.gpus[stay.host] - sum(from_s <= at_s < until_s for from_s, until_s in held)
        if len(there) > free and (there, free) not in seen:
            seen.add((there, free))
            yield dict.fromkeys(sorted(there), 1.0), -inf, float(max(0, free))


def _links(problem: WindowProblem) -> Iterator[Row]:
    """No link beyond its share, in parts of it."""
    users: dict[DirectedLink, list[tuple[int, Reservation]]] = defaultdict(list)
    for number, choice in enumerate(problem.choices):
        for taken in choice.reservations if isinstance(choice, Handover) else ():
            for link in taken.links:
                users[link].append((number, taken))
    for link in sorted(users, key=str):
        yield from _links_of(problem, link, users[link])


def _links_of(
    problem: WindowProblem, link: DirectedLink, users: Sequence[tuple[int, Reservation]]
) -> Iterator[Row]:
    known = [each for each in problem.reservations if link in each.links]
    seen: set[tuple[tuple[int, float], ...]] = set()
    for at_s in _moments_s(problem, [*(each for _, each in users), *known]):
        share = max(1.0, problem.shares.at(link, at_s))
        on = {n: r.rate_bytes_per_s / share for n, r in users if r.from_s <= at_s < r.until_s}
        taken = sum(r.rate_bytes_per_s for r in known if r.from_s <= at_s < r.until_s) / share
        together = tuple(on.items())
        if not on or (taken <= 0.0 and (together in seen or _at_most(problem.choices, on) <= 1.0 + NEARLY)):
            continue
        seen.add(together)
        yield on, -inf, max(0.0, 1.0 + NEARLY - taken)


def _moments_s(problem: WindowProblem, taken: Iterable[Reservation]) -> list[float]:
    """When a load may rise, or a share fall."""
    moments: set[float] = set()
    for each in taken:
        moments |= {each.from_s, *problem.shares.changes_s(each.from_s, each.until_s)}
    return sorted(moments)


def _at_most(choices: Sequence[Choice], on: dict[int, float]) -> float:
    """The most that these can be together: a job takes one way out of a place at a time."""
    most: dict[str, float] = defaultdict(float)
    for number, part in on.items():
        most[choices[number].job] = max(most[choices[number].job], part)
    return sum(most.values())
