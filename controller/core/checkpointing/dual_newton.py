"""Checkpoint rates that cost all jobs together the least, over a network: a convex program, solved by its prices.

    minimise   sum_i g_i(b_i)          g: what a rate leaves a job to lose (`cost`)
    subject to sum of b over each link <= its budget B_l,   lower_i <= b_i <= upper_i

Theorem 1 of paper A is one link, no bounds but caps, and g_i = sqrt(2 lambda_i C_i/b_i). Here a job pays a price at every
link that it crosses: with a multiplier mu_l >= 0 a link, job i buys the rate at which -g_i' is the sum q_i of its links'
multipliers (or stays at a bound), and the multipliers are right when every link is exactly full or free of charge. One
link is a root of one variable; of many it is the maximum of the concave dual

    D(mu) = sum_i min_b (g_i(b) + q_i b) - sum_l mu_l B_l.

**Method.** In logarithms a job's demand is nearly a straight line in the price (slope 0 to -1/2), so Newton is done
there: log load_l = log B_l, on the links that charge, the system made symmetric by scaling with mu and the load. A step
is taken if the dual rises by it (or the misfit halves), else it is taken back and damped more (Levenberg and Marquardt);
small enough, a step always raises a concave dual. A link whose load stays below its budget sees its multiplier fall until
it is nothing and is let go; one that overflows starts to charge. Links that no jobs compete for never enter (`contention`). The
first guess is an earlier answer, or a `cold_start`.

**What was tried instead.** A primal-dual interior point took 20 to 40 steps where this takes 10 to 20, on systems of all
contended links, not of the few that charge; Newton without the taking back cycles between corners of capped jobs.

**Speed.** The linear system is never written down: conjugate gradients need its product with a vector only, which is a
sum over jobs of what each makes of the links on its way. All of it is plain loops in machine code (`compiled`).

**Certificate.** D(mu) is a lower bound of the optimum whatever mu is. At the end rates are cut back where a link is over
its budget by a last digit, and `gap` is (cost - D)/cost of the rates that are handed out: an upper bound on what any other
allocation could save, below TOLERANCE for jobs and links as campuses have them. Where payloads, hazards and links differ by
ten decades and more Newton may end at MAX_STEPS without it (12 of 300 such instances): the rates still fit, but may be
far from the best, and `gap` says by how much at most. It is a certificate of the curves that it is given: of broken loss budgets
these stand for the jobs' losses (`cost`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from controller.core.checkpointing.cold_start import first_guess
from controller.core.checkpointing.contention import (
    MIN_PART,
    TINY,
    Market,
    between,
    carry,
    ceilings,
    contended_links,
    market_of,
    paid,
)
from controller.core.checkpointing.cost import (
    CheckpointCosts,
    bought,
    lost,
    worth,
)
from controller.numerics.arrays import Floats, Numbers
from controller.numerics.jit import compiled, exp, log

TOLERANCE = 1e-6  # of the cost, between what is handed out and the optimum
SETTLED = 5e-7  # of the cost: Newton stops there
# the worst of some thousand random campuses took 60
MAX_STEPS = 200
NOTHING = 1e-15  # of the cost: a multiplier that earns less is let go
# the Levenberg term, its factor after a step taken, and taken back
FIRST_DAMPING, EASED, TIGHTENED = 0.1, 0.1, 10.0
MIN_DAMPING, MIN_TIGHTENED = 1e-10, 1e-4
STIFFNESS = 1.0  # of a link whose jobs do not move, as a share of what it earns: its step stays finite
KINK = 3.0  # jobs beyond a bound by less than so many misfits count as partly moving
FAINT = 0.1  # with what part of the price that would empty it an overflowing link begins to charge
LARGEST_FALL = -6.0  # of a multiplier's logarithm in one step
LARGEST_RISE = 1.0  # of a multiplier in one step, as a share of what its jobs pay in all
# relative residual at which a Newton step is solved well enough, and rounds at most
NEAR, MAX_ROUNDS = 1e-2, 60
NO_GUESS: Floats = np.empty(0)


class _Point(NamedTuple):
    """Multipliers of the contended links and all that follows from them; `moves` is -db/dlog q."""

    multipliers: Floats
    rates: Floats
    moves: Floats
    price: Floats
    load: Floats
    cost: float
    dual: float
    misfit: float
    settled: bool


@compiled
def cheapest(
    costs: CheckpointCosts,
    lower: Floats,
    upper: Floats,
    routes: Numbers,
    capacity: Floats,
    guess: Floats,
    settled: float,
) -> tuple[Floats, Floats, float]:
    """The cheapest rates, a row a job: (rates, multipliers, gap, steps). 0 <= `lower` <= `upper`; lower bounds must fit on every
    link (`planner`). `routes`: the links that each job crosses, padded with len(capacity).

    `guess`: multipliers to begin with, those of an earlier answer to nearly the same problem: often they are good enough as they
    are, and the certificate says so; empty: none. The answer depends on them within TOLERANCE. `settled`: the part of the cost
    by which rates may be dearer than the cheapest; less makes more steps.

    A job whose every rate costs the same (no hazard, no loss budget) keeps its lower bound; one that crosses a link without
    capacity gets 0. Links that no job crosses have multiplier 0.
    """
    ceiling = ceilings(costs, lower, upper, routes, capacity)
    contended = contended_links(ceiling, routes, capacity)
    multipliers = np.zeros(len(capacity))
    if not len(contended):
        return ceiling, multipliers, 0.0
    market = market_of(costs, lower, ceiling, routes, capacity, contended)
    first = guess[contended] if len(guess) else first_guess(market)
    # Newton, until the links are full or free; steps that were taken back count too
    here, damping, steps = _at(market, first, settled), FIRST_DAMPING, 0
    while not here.settled and steps < MAX_STEPS:
        there = _at(market, _stepped(market, here, damping), settled)
        steps += 1
        if there.dual > here.dual or there.misfit < 0.5 * here.misfit:
            here, damping = there, max(damping * EASED, MIN_DAMPING)
        else:
            damping = max(damping, MIN_TIGHTENED) * TIGHTENED
    rates = _fitted(market, here.rates, here.load, here.price)
    ceiling[market.jobs] = rates
    multipliers[contended] = here.multipliers
    return ceiling, multipliers, _gap(market, here.dual, rates)


# ---------------------------------------------------------------- Newton


@compiled
def _at(market: Market, multipliers: Floats, near: float) -> _Point:
    """Evaluate the multipliers: rates that jobs buy at them, and the misfit of the links."""
    count = len(market.jobs)
    rates, moves, price, beyond = np.empty(count), np.empty(count), np.empty(count), np.empty(count)
    load, cost, misfit, earned = np.zeros(len(multipliers)), 0.0, 0.0, 0.0
    for job in range(count):
        price[job] = paid(market, multipliers, job)
        wanted, elasticity = bought(market.costs, market.jobs[job], max(price[job], TINY))
        rates[job] = between(wanted, market.lower[job], market.upper[job])
        moves[job] = rates[job] * elasticity
        beyond[job] = max(wanted / rates[job], rates[job] / wanted) - 1.0
        cost += lost(market.costs, market.jobs[job], rates[job])
        carry(market, load, job, rates[job])
    for link in range(len(load)):
        excess = load[link] - market.capacity[link]
        misfit += multipliers[link] * abs(excess)
        earned += multipliers[link] * excess
    misfit /= cost
    # a job that wishes beyond its bound by less moves in part: a kink would make Newton cycle
    kink = min(1.0, KINK * misfit)
    if kink > 0.0:
        for job in range(count):
            moves[job] *= between(1.0 - beyond[job] / kink, 0.0, 1.0)
    settled = misfit <= near and _gap(market, cost + earned, _fitted(market, rates, load, price)) <= near
    return _Point(multipliers, rates, moves, price, load, cost, cost + earned, misfit, settled)


@compiled
def _stepped(market: Market, here: _Point, damping: float) -> Floats:
    """Take one damped Newton step of the logarithms of the multipliers that charge or have to."""
    multipliers, capacity = here.multipliers.copy(), market.capacity
    # links that stay below their budgets for nothing charge no more; links that overflow begin to
    new = np.zeros(len(multipliers), np.bool_)
    for link in range(len(multipliers)):
        if here.load[link] < capacity[link] and multipliers[link] * capacity[link] < NOTHING * here.cost:
            multipliers[link] = 0.0
        new[link] = here.load[link] > capacity[link] and multipliers[link] == 0.0
    if new.any():
        # at a part of the price at which all jobs cut back by what the worst of the new links on their ways has too much
        extra, carried = np.zeros(len(new)), np.zeros(len(new))
        for job in range(len(market.jobs)):
            keep = 1.0
            for link in market.ways[job]:
                if link < len(new) and new[link]:
                    keep = min(keep, capacity[link] / here.load[link])
            target = max(here.rates[job] * keep, MIN_PART * market.upper[job])
            more = max(worth(market.costs, market.jobs[job], target) - here.price[job], 0.0)
            carry(market, extra, job, more * target)
            carry(market, carried, job, target)
        multipliers[new] = FAINT / (1.0 + 10.0 * damping) * (extra / carried)[new]
    steepness, earned = np.empty(len(market.jobs)), np.zeros(len(multipliers))
    for job in range(len(steepness)):
        price = paid(market, multipliers, job)
        steepness[job] = here.moves[job] / max(price, TINY)
        carry(market, earned, job, price * here.rates[job])
    change = _newton_step(market, multipliers, steepness, damping, here.load)
    for link in range(len(multipliers)):
        if change[link] > 0.0:
            most = LARGEST_RISE * earned[link] / max(here.load[link], TINY)
            multipliers[link] += min(multipliers[link] * change[link], most)
        else:
            multipliers[link] *= exp(max(change[link], LARGEST_FALL))
    return multipliers


@compiled
def _newton_step(
    market: Market, multipliers: Floats, steepness: Floats, damping: float, load: Floats
) -> Floats:
    """The step of the logarithms: x in (S + damping (diag S + STIFFNESS c)) x = c log(load/budget), where c is a link's
    load times its multiplier and S is mu_l mu_k times the sum of -db/dq over the jobs that cross both links. 0 of
    links that do not charge.

    By conjugate gradients on the system scaled to a diagonal of ones, until what is left is NEAR of the right side: a
    step that is solved better takes longer and brings Newton no further.
    """
    links = len(multipliers)
    diagonal, root, left = np.zeros(links), np.zeros(links), np.zeros(links)
    for job in range(len(steepness)):
        carry(market, diagonal, job, steepness[job])
    for link in range(links):
        if multipliers[link] > 0.0:
            earned, own = multipliers[link] * load[link], diagonal[link] * multipliers[link] ** 2
            root[link] = 1.0 / math.sqrt(own + damping * (own + STIFFNESS * earned))
            left[link] = earned * log(load[link] / market.capacity[link]) * root[link]
    scale, answer, direction = multipliers * root, np.zeros(links), left.copy()
    squares = _dot(left, left)
    enough = NEAR * NEAR * squares
    for _ in range(MAX_ROUNDS):
        if squares <= enough:
            break
        # the scaled system times the direction: what each job's reaction to all its links' prices means for each of them
        image, along = direction.copy(), scale * direction
        for job in range(len(steepness)):
            reaction = steepness[job] * paid(market, along, job)
            for link in market.ways[job]:
                if link < links:  # its own is in the ones
                    image[link] += scale[link] * (reaction - steepness[job] * along[link])
        part = squares / _dot(direction, image)
        answer += part * direction
        left -= part * image
        before, squares = squares, _dot(left, left)
        direction = left + squares / before * direction
    return answer * root


@compiled
def _dot(one: Floats, other: Floats) -> float:
    total = 0.0
    for place in range(len(one)):
        total += one[place] * other[place]
    return total


# ---------------------------------------------------------------- the answer


@compiled
def _fitted(market: Market, rates: Floats, load: Floats, price: Floats) -> Floats:
    """Cut rates back towards their lower bounds on each link that is over its budget.

    First of the jobs that pay what a byte/s is worth to them: one that its cap holds back has a better use for it.
    """
    over = load > market.capacity
    if not over.any():
        return rates
    spare, yielded = np.zeros(len(rates)), np.zeros(len(load))
    for job in range(len(rates)):
        if rates[job] > market.lower[job]:
            willing = min(1.0, price[job] / worth(market.costs, market.jobs[job], rates[job]))
            spare[job] = (rates[job] - market.lower[job]) * willing
        carry(market, yielded, job, spare[job])
    if ((load - market.capacity > yielded) & over).any():
        spare, yielded = rates - market.lower, np.zeros(len(load))
        for job in range(len(rates)):
            carry(market, yielded, job, spare[job])
    fitted = rates.copy()
    for job in range(len(rates)):
        cut = 0.0
        for link in market.ways[job]:
            if link < len(load) and over[link]:
                cut = max(cut, min(1.0, (load[link] - market.capacity[link]) / yielded[link]))
        fitted[job] -= spare[job] * cut
    return fitted


@compiled
def _gap(market: Market, dual: float, rates: Floats) -> float:
    cost = 0.0
    for job in range(len(rates)):
        cost += lost(market.costs, market.jobs[job], rates[job])
    return max(0.0, (cost - dual) / cost) if 0.0 < cost < np.inf else 0.0
