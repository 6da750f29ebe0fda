"""Checkpoint rates that cost all jobs together the least, over a network: a convex program, solved by its prices.

    minimise   sum_i g_i(b_i)          g: what a rate leaves a job to lose (`checkpoint_cost`)
    subject to sum of b over each link <= its budget B_l,   lower_i <= b_i <= upper_i

Theorem 1 of paper A is one link, no bounds but caps, and g_i = sqrt(2 lambda_i C_i/b_i). Here a job pays a price at every
link that it crosses: with a multiplier mu_l >= 0 a link, job i buys the rate at which -g_i' is the sum q_i of its links'
multipliers (or stays at a bound), and the multipliers are right when every link is exactly full or free of charge. One
link is a root of one variable; of many it is the maximum of the concave dual

    D(mu) = sum_i min_b (g_i(b) + q_i b) - sum_l mu_l B_l.

**Method.** In logarithms a job's demand is nearly a straight line in the price (slope -1/2 to -2/3), so Newton is done
there: log load_l = log B_l, on the links that charge, the system made symmetric by scaling with mu and the load. A step
is taken if the dual rises by it (or the misfit halves), else it is taken back and damped more (Levenberg and Marquardt);
small enough, a step always raises a concave dual. A link whose load stays below its budget sees its multiplier fall until
it is nothing and is let go; one that overflows starts to charge. Links that could not fill even if all their jobs had
their upper bounds (a host's own uplink among them: it is its one job's upper bound) never enter. The first guess is a
few rounds of water filling by cube roots, everybody paying at the link that gives it least.

**What was tried instead.** A primal-dual interior point took 20 to 40 steps where this takes 10 to 20, on systems of all
contended links, not of the few that charge; Newton without the taking back cycles between corners of capped jobs.

**Certificate.** D(mu) is a lower bound of the optimum whatever mu is. At the end rates are cut back where a link is over
its budget by a last digit, and `gap` is (cost - D)/cost of the rates that are handed out: an upper bound on what any other
allocation could save, normally below TOLERANCE. Were it ever not (MOST_STEPS), the rates still fit, and `gap` says how
good they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from controller.core.checkpoint_cost import Array, Costs
from controller.core.network import sums
from testbed.elementary import cbrts, exps, logs

Indices = NDArray[np.intp]

TOLERANCE = 1e-6  # of the cost, between what is handed out and the optimum
SETTLED = 5e-7  # of the cost: Newton stops there
MOST_STEPS = 200  # the worst of some thousand random campuses took 60
NOTHING = 1e-15  # of the cost: a multiplier that earns less is let go
FIRST_ROUNDS = 8  # of water filling, for the first guess
FIRST_DAMPING, EASED, TIGHTENED = (
    0.1,
    0.1,
    10.0,
)  # the Levenberg term, its factor after a step taken, and taken back
LEAST_DAMPING, LEAST_TIGHTENED = 1e-10, 1e-4
STIFFNESS = 1.0  # of a link whose jobs do not move, as a share of what it earns: its step stays finite
KINK = 3.0  # jobs beyond a bound by less than so many misfits count as partly moving
FAINT = 0.1  # with what part of the price that would empty it an overflowing link begins to charge
LARGEST_FALL = -6.0  # of a multiplier's logarithm in one step
LARGEST_RISE = 1.0  # of a multiplier in one step, as a share of what its jobs pay in all
NEAR, MOST_ROUNDS = (
    1e-2,
    60,
)  # relative residual at which a Newton step is solved well enough, and rounds at most
LEAST = 1e-9  # of a job's upper bound: what a guess gives it at least
TINY = 1e-300  # in place of 0, where something is divided by it


@dataclass(frozen=True, slots=True)
class Problem:
    """`routes`: for each job the indices of the links that it crosses, padded with len(capacity); 0 <= lower <= upper."""

    costs: Costs
    lower_bytes_per_s: Array
    upper_bytes_per_s: Array
    routes: Indices
    capacity_bytes_per_s: Array


@dataclass(frozen=True, slots=True)
class Allocation:
    """Rates in bytes/s, a multiplier a link (cost a byte/s), the relative duality gap and the Newton steps it took."""

    rates_bytes_per_s: Array
    multipliers: Array
    gap: float
    steps: int

    @property
    def certified(self) -> bool:
        """Whether no allocation is cheaper by more than TOLERANCE of the cost."""
        return self.gap <= TOLERANCE


def allocate(problem: Problem, guess: Array | None = None, settled: float = SETTLED) -> Allocation:
    """The cheapest rates. Lower bounds must fit on every link (`loss_budgets`).

    `settled`: the part of the cost by which they may be dearer than the cheapest; less makes more steps.

    `guess`: multipliers to begin with, those of an earlier answer to nearly the same problem: often they are good enough
    as they are, and the certificate says so. The answer depends on them within TOLERANCE.

    A job whose every rate costs the same (no hazard, no loss budget) keeps its lower bound; one that crosses a link
    without capacity gets 0. Links that no job crosses have multiplier 0.
    """
    ceiling = _ceilings(problem)
    return _Solver(problem, ceiling, _contended(problem, ceiling), settled).run(guess)


def _ceilings(problem: Problem) -> Array:
    """No job can get more than its narrowest link, nor wants anything where nothing is gained by it."""
    rooms = np.append(problem.capacity_bytes_per_s, np.inf)
    ceiling = np.minimum(problem.upper_bytes_per_s, rooms[problem.routes].min(axis=1, initial=np.inf))
    pointless = problem.costs.hazard_per_s + problem.costs.slope_per_s == 0.0
    return np.where(pointless, problem.lower_bytes_per_s, ceiling)


def _contended(problem: Problem, ceiling: Array) -> Indices:
    """Links that would be over their budgets with all jobs at their ceilings."""
    links = len(problem.capacity_bytes_per_s)
    if ceiling.size and not np.isfinite(ceiling).all():  # crosses no link and has no cap
        ceiling = np.where(np.isfinite(ceiling), ceiling, 0.0)
    return np.flatnonzero(_loads(problem.routes, ceiling, links) > problem.capacity_bytes_per_s)


def _loads(routes: Indices, rates: Array, links: int) -> Array:
    """What each link carries."""
    ways = routes.T
    return sums(ways.ravel(), np.broadcast_to(rates, ways.shape).ravel(), links + 1)[:links]


@dataclass(frozen=True, slots=True)
class _Point:
    """Multipliers of the contended links and all that follows from them; `moves` is -db/dlog q."""

    multipliers: Array
    rates: Array
    moves: Array
    price: Array
    load: Array
    cost: float
    dual: float
    misfit: float
    settled: bool


class _Solver:
    """The contended links, renumbered, and the jobs that cross one; everybody else has its ceiling."""

    def __init__(self, problem: Problem, ceiling: Array, contended: Indices, settled: float) -> None:
        links = len(problem.capacity_bytes_per_s)
        number = np.full(links + 1, len(contended), dtype=np.intp)
        number[contended] = np.arange(len(contended))
        routes = number[problem.routes]
        self.problem, self.ceiling, self.contended, self.near = problem, ceiling, contended, settled
        self.jobs = np.flatnonzero((routes < len(contended)).any(axis=1) & (ceiling > 0.0))
        self.ways = _compressed(routes.T[:, self.jobs], len(contended))
        self.crossed = self.ways.ravel()
        self.crossing = np.tile(np.arange(len(self.jobs)), len(self.ways))
        self.lower = problem.lower_bytes_per_s[self.jobs]
        self.upper = ceiling[self.jobs]
        self.costs = problem.costs.only(self.jobs)
        self.capacity = problem.capacity_bytes_per_s[contended]
        self._system = _System(self.ways, contended[:0])

    # ------------------------------------------------------------ demand

    def demand(self, multipliers: Array) -> tuple[Array, Array, Array, Array]:
        """(rates, elasticities, by what part the wish is beyond a bound, prices) of the jobs."""
        price = self.along(multipliers)
        wanted, elasticity = self.costs.bought(np.maximum(price, TINY))
        rates = np.minimum(np.maximum(wanted, self.lower), self.upper)
        beyond = np.maximum(wanted / rates, rates / wanted) - 1.0
        return rates, elasticity, beyond, price

    def load(self, rates: Array) -> Array:
        """What each contended link carries."""
        links = len(self.capacity)
        return sums(self.crossed, rates[self.crossing], links + 1)[:links]

    def along(self, multipliers: Array) -> Array:
        """What each job pays on its way."""
        priced = np.zeros(len(multipliers) + 1)
        priced[:-1] = multipliers
        paid: Array = np.add.reduce(priced[self.ways], axis=0)
        return paid

    # ------------------------------------------------------------ Newton

    def run(self, guess: Array | None = None) -> Allocation:
        """Newton until the links are full or free; steps that were taken back count too."""
        if not self.capacity.size:
            return self._answer(None, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            first = self._first_guess() if guess is None else guess[self.contended]
            damping, here, steps = FIRST_DAMPING, self._at(first), 0
            while not here.settled and steps < MOST_STEPS:
                there, steps = self._at(self._stepped(here, damping)), steps + 1
                if there.dual > here.dual or there.misfit < 0.5 * here.misfit:
                    here, damping = there, max(damping * EASED, LEAST_DAMPING)
                else:
                    damping = max(damping, LEAST_TIGHTENED) * TIGHTENED
            return self._answer(here, steps)

    def _at(self, multipliers: Array) -> _Point:
        """What the jobs buy at these multipliers, and what that says about them."""
        rates, elasticity, beyond, price = self.demand(multipliers)
        load, cost = self.load(rates), float(np.add.reduce(self.costs.cost(rates)))
        excess = load - self.capacity
        misfit = float(np.add.reduce(multipliers * np.abs(excess))) / cost
        dual = cost + float(np.add.reduce(multipliers * excess))
        settled = misfit <= self.near and self._gap(dual, self._fitted(rates, load, price)) <= self.near
        kink = min(1.0, KINK * misfit)
        moves = rates * elasticity * _clipped(1.0 - beyond / kink, 0.0, 1.0) if kink > 0.0 else rates
        return _Point(multipliers, rates, moves, price, load, cost, dual, misfit, settled)

    def _first_guess(self) -> Array:
        """Nearly max-min shares by cube roots; each job pays at the link that gives it least."""
        weight = cbrts((self.costs.hazard_per_s + self.costs.slope_per_s) * self.costs.payload_bytes)
        shares = np.broadcast_to(weight, self.ways.shape)
        level = self.capacity / self.load(weight)
        for _ in range(FIRST_ROUNDS):
            level = self._higher_level(shares, np.append(level, np.inf)[self.ways] * shares, level)
        offered = np.append(level, np.inf)[self.ways] * shares
        narrowest = offered.argmin(axis=0)
        everyone = np.arange(len(self.jobs))
        rate = np.clip(offered[narrowest, everyone], np.maximum(self.lower, LEAST * self.upper), self.upper)
        payer, links = self.ways[narrowest, everyone], len(self.capacity)
        spent = np.bincount(payer, weights=self.costs.price(rate) * rate, minlength=links + 1)
        bought = np.bincount(payer, weights=rate, minlength=links + 1)
        return (spent / np.maximum(bought, TINY))[:links]

    def _higher_level(self, shares: Array, offered: Array, level: Array) -> Array:
        """Levels at which each link is full, if who is content with less on other links stays there."""
        links, flat = len(self.capacity), self.ways.ravel()
        rate = np.clip(offered.min(axis=0), self.lower, self.upper)
        content = rate < offered * (1.0 - 1e-9)
        taken = np.bincount(flat, np.where(content, rate, 0.0).ravel(), links + 1)[:links]
        thirst = np.bincount(flat, np.where(content, 0.0, shares).ravel(), links + 1)[:links]
        room = np.maximum(self.capacity - taken, 0.0) / np.where(thirst > 0.0, thirst, 1.0)
        return np.where(thirst > 0.0, room, 2.0 * level)

    def _stepped(self, here: _Point, damping: float) -> Array:
        """One damped Newton step of the logarithms of the multipliers that charge or have to."""
        multipliers = self._let_go_and_taken_up(here, damping)
        price = self.along(multipliers)
        steepness = here.moves / np.maximum(price, TINY)
        change = self._change(multipliers, steepness, damping, here.load)
        paid = self.load(price * here.rates) / np.maximum(here.load, TINY)
        rise = np.minimum(multipliers * change, LARGEST_RISE * paid)
        fall = exps(_clipped(change, LARGEST_FALL, 0.0))
        return np.where(change > 0.0, multipliers + rise, multipliers * fall)

    def _let_go_and_taken_up(self, here: _Point, damping: float) -> Array:
        multipliers = here.multipliers.copy()
        earned = multipliers * self.capacity
        multipliers[(here.load < self.capacity) & (earned < NOTHING * here.cost)] = 0.0
        new = (here.load > self.capacity) & (multipliers == 0.0)
        if new.any():  # what would make everybody cut back alike
            room = np.divide(self.capacity, here.load, out=np.ones(len(new)), where=new)
            keep = np.append(room, 1.0)[self.ways].min(axis=0)
            target = np.maximum(here.rates * keep, LEAST * self.upper)
            extra = np.maximum(self.costs.price(target) - here.price, 0.0)
            multipliers[new] = (
                FAINT / (1.0 + 10.0 * damping) * (self.load(extra * target) / self.load(target))[new]
            )
        return multipliers

    def _change(self, multipliers: Array, steepness: Array, damping: float, load: Array) -> Array:
        """Of the logarithms: x in (S + damping (diag S + STIFFNESS c)) x = c log(load/budget), where c is a link's
        load times its multiplier and S is mu_l mu_k times the sum of -db/dq over the jobs that cross both links. 0 of
        links that do not charge.
        """
        active = np.flatnonzero(multipliers > 0.0)
        if not np.array_equal(active, self._system.links):
            self._system = _System(self.ways, active)
        charging, carried = multipliers[active], load[active]
        diagonal = self.load(steepness)[active] * charging**2
        earned = charging * carried
        spring = diagonal + damping * (diagonal + STIFFNESS * earned)
        change = np.zeros(len(multipliers))
        right = earned * logs(carried / self.capacity[active])
        change[active] = self._system.solved(steepness, charging, spring, right)
        return change

    # ------------------------------------------------------------ the answer

    def _answer(self, here: _Point | None, steps: int) -> Allocation:
        """Rates that fit, and how far from the optimum they can be at most."""
        everybody = self.ceiling.copy()
        multipliers = np.zeros(len(self.problem.capacity_bytes_per_s))
        if here is None:
            return Allocation(everybody, multipliers, 0.0, steps)
        everybody[self.jobs] = self._fitted(here.rates, here.load, here.price)
        multipliers[self.contended] = here.multipliers
        return Allocation(everybody, multipliers, self._gap(here.dual, everybody[self.jobs]), steps)

    def _fitted(self, rates: Array, load: Array, price: Array) -> Array:
        """What exceeds the lower bounds, cut back on each link that is over its budget.

        First of those who pay what a byte/s is worth to them: one that its cap holds back has a better use for it.
        """
        excess, spare = load - self.capacity, rates - self.lower
        over = excess > 0.0
        if not over.any():
            return rates
        with np.errstate(divide="ignore", invalid="ignore"):
            willing = np.where(spare > 0.0, np.minimum(1.0, price / self.costs.price(rates)), 0.0)
            if (excess > self.load(spare * willing))[over].any():
                willing = np.ones(len(spare))
            share = np.where(over, excess / self.load(spare * willing), 0.0)
        cut = np.append(np.minimum(share, 1.0), 0.0)[self.ways].max(axis=0, initial=0.0)
        fitted: Array = rates - spare * willing * cut
        return fitted

    def _gap(self, dual: float, rates: Array) -> float:
        cost = float(self.costs.cost(rates).sum())
        return max(0.0, (cost - dual) / cost) if 0.0 < cost < np.inf else 0.0


def _clipped(values: Array, low: float, high: float) -> Array:
    return np.minimum(np.maximum(values, low), high)


def _compressed(ways: Indices, nobody: int) -> Indices:
    """The same ways (a column a job) with `nobody` at the end of each, and no more rows than are needed."""
    counts = ways < nobody
    place = counts.cumsum(axis=0)
    height = int(place[-1].max(initial=0)) if len(place) else 0
    answer = np.full((height, ways.shape[1]), nobody, dtype=np.intp)
    _, job = np.nonzero(counts)
    answer[place[counts] - 1, job] = ways[counts]
    return answer


@lru_cache(maxsize=64)
def _two_of(size: int) -> tuple[Indices, Indices]:
    """Every two different numbers below `size`."""
    return np.triu_indices(size, 1)


class _System:
    """Linear equations over the links that charge: one link has to do with another if a job crosses both."""

    def __init__(self, ways: Indices, links: Indices) -> None:
        number = np.full(int(ways.max(initial=0)) + 1, len(links), dtype=np.intp)
        number[links] = np.arange(len(links))
        short = _compressed(number[ways], len(links))
        first, second = _two_of(len(short))
        together = short[second] < len(links)  # who does not cross as many has none from there on
        one, two = short[first][together], short[second][together]
        job = np.nonzero(together)[1]
        keys = np.concatenate((one * len(links) + two, two * len(links) + one))
        places, self._entry = np.unique(keys, return_inverse=True)
        self.links, self._job = links, np.concatenate((job, job))
        self.row, self.column = np.divmod(places, max(1, len(links)))

    def solved(self, weight: Array, scale: Array, diagonal: Array, right: Array) -> Array:
        """x, where beside the diagonal is the sum of the weights of the jobs that cross both, times both scales.

        By conjugate gradients on the system scaled to a diagonal of ones, until what is left is NEAR of the right side: a
        step that is solved better takes longer and brings Newton no further. Sums by numpy: a BLAS has other last bits on
        other machines.
        """
        root = 1.0 / np.sqrt(diagonal)
        scaled = scale * root
        value = sums(self._entry, weight[self._job], len(self.row)) * scaled[self.row] * scaled[self.column]
        answer, left = np.zeros(len(right)), right * root
        squares = enough = _dot(left, left)
        direction = left
        for _ in range(MOST_ROUNDS):
            if squares <= NEAR * NEAR * enough:
                break
            image = direction + sums(self.row, value * direction[self.column], len(right))
            part = squares / _dot(direction, image)
            answer, left = answer + part * direction, left - part * image
            before, squares = squares, _dot(left, left)
            direction = left + squares / before * direction
        return answer * root


def _dot(one: Array, other: Array) -> float:
    return float(np.add.reduce(one * other))
