"""Evaluators of paper B's vectors (ids p1.*), by id family."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from controller.core.queueing.controllers.algorithm1 import next_level
from controller.core.queueing.controllers.fixed import admit_probability
from experiments.theory import laws
from experiments.theory.domain import DomainError
from experiments.theory.families import Evaluate, Found, attempt
from experiments.theory.laws import BathTub, Exponential, Law
from experiments.theory.paper_b import (
    bounds,
    costs,
    markov,
    single_slot,
    stationary,
    waits,
)
from experiments.theory.vectors import BadInput, Given

K = 10.0  # paper B's on-demand cost, where a vector does not say
CASES: dict[str, str] = {
    "bath": "bathtub(.5,1,.8,24)",
    "poisson": "Poisson(1/12)",
    "gamma": "Gamma(12,1)",
}


def theorem1(given: Given, wanted: Collection[str]) -> Found:
    """Theorem 1: the cost of a job from P(a spot finds the queue empty)."""
    empty = given.number("pi0_at_spot_epochs", "pi0")
    return {
        "cost": attempt(
            costs.cost_per_job, given.number("k", default=K), given.mean_h("lam"), given.mean_h("mu"), empty
        )
    }


def theorem2(given: Given, wanted: Collection[str]) -> Found:
    """Theorem 2: the cost of one slot."""
    k, delta = given.number("k", default=K), given.number("delta")
    return {"cost": attempt(costs.cost_of_one_slot, k, given.mean_h("mu"), delta)}


def threshold(given: Given, wanted: Collection[str]) -> Found:
    """Theorem 2's range of delays, as printed and as it is."""
    jobs, spots = _law(given, "jobs", "lam"), _law(given, "spots", "mu")
    printed = attempt(costs.printed_threshold_h, jobs, spots)
    longest = attempt(costs.longest_one_slot_delay_h, jobs, spots)
    return {
        "threshold": printed,
        "paper_P_A_le_S_over_lam": printed,
        "paper_threshold": printed,
        "true_max_single_slot_delay": longest,
        "true_threshold": longest,
        "P_A_le_S": attempt(costs.job_before_spot, jobs, spots),
    }


def one_slot(given: Given, wanted: Collection[str]) -> Found:
    """One slot for any law of spots; names of outputs hold their argument (`cost_p05`, `p_for_delta3`)."""
    mean_job, k, spots = given.mean_h("lam"), given.number("k", default=K), _law(given, "spots", "mu")
    jobs = Exponential(mean_job)

    def at_delta(delta: float) -> Any:
        p = attempt(single_slot.join_probability, mean_job, spots, delta)
        return p if isinstance(p, DomainError) else single_slot.cost(mean_job, spots, p, k)

    named: dict[str, Callable[[], Any]] = {
        "LS_at_lam": lambda: spots.laplace(1.0 / mean_job),
        "theorem2_formula": lambda: costs.cost_of_one_slot(k, spots.mean, given.number("delta")),
        "paper_threshold": lambda: costs.printed_threshold_h(jobs, spots),
        "true_threshold": lambda: single_slot.delay_h(mean_job, spots, 1.0),
    }
    patterns: list[tuple[str, Callable[[float], Any]]] = [
        (r"p_for_delta(.*)", lambda d: single_slot.join_probability(mean_job, spots, d)),
        (r"cost_at_delta(.*)", at_delta),
        (r"delay_p(.+)", lambda p: single_slot.delay_h(mean_job, spots, p)),
        (r"cost_p(.+)", lambda p: single_slot.cost(mean_job, spots, p, k)),
    ]
    found = {name: attempt(formula) for name, formula in named.items() if name in wanted}
    return found | _by_pattern(patterns, wanted, given)


def theorem3(given: Given, wanted: Collection[str]) -> Found:
    """Theorem 3: the mean wait that the delay allows."""
    return {"EW": attempt(waits.mean_wait_allowed_h, given.mean_h("lam"), given.number("delta"))}


def corollaries(given: Given, wanted: Collection[str]) -> Found:
    """Corollaries 1, 3 and 4, and Remark 2."""
    means = given.mean_h("lam"), given.mean_h("mu"), given.number("delta")
    return {
        "EW": attempt(waits.mean_wait_allowed_h, means[0], means[2]),
        "cor1_p": attempt(waits.share_that_waits, *means),
        "cor3_laplace_target": attempt(waits.laplace_target, *means),
        "remark2_phi": attempt(waits.exponential_wait_rate_per_h, *means),
        "cor4_X": attempt(waits.fixed_wait_h, *means),
    }


def theorem5(given: Given, wanted: Collection[str]) -> Found:
    """Theorem 5: the least cost with at most N waiting."""
    found = markov.theorem5(
        given.mean_h("lam"),
        given.mean_h("mu"),
        given.number("N"),
        given.number("k", default=K),
    )
    return {"cost": found.cost, "delta_N": found.delay_h, "pi0": found.empty}


def markov_optimum(given: Given, wanted: Collection[str]) -> Found:
    """Theorem 4: r* and its cost, for Poisson jobs and spots."""
    k = given.number("k", default=K)
    found = markov.optimum(given.mean_h("lam"), given.mean_h("mu"), given.number("delta"), k)
    return {"r_star": found.r_star, "cost": found.cost}


def markov_level(given: Given, wanted: Collection[str]) -> Found:
    """Poisson jobs and spots under a given r."""
    k = given.number("k", default=K)
    found = markov.under_level(given.mean_h("lam"), given.mean_h("mu"), given.number("r"), k)
    return {"delay": found.delay_h, "cost": found.cost, "pi": found.levels, "pi0": found.empty}


def bath_tub(given: Given, wanted: Collection[str]) -> Found:
    """The bath-tub law: moments, F, density, quantiles and transform (`F_12`, `LS_1_12`)."""
    law = BathTub(given.number("A"), given.number("tau1"), given.number("tau2"), given.number("b"))
    patterns: list[tuple[str, Callable[[float], Any]]] = [
        (r"F_(.+)", lambda t: float(law.cdf(t))),
        (r"f_(.+)", lambda t: float(law.pdf(t))),
        (r"ppf_(.+)", lambda percent: law.quantile(percent / 100.0)),
        (r"LS_(.+)", law.laplace),
    ]
    moments = {"L": law.longest, "mean": law.mean, "ES2": law.second_moment}
    return moments | _by_pattern(patterns, wanted, given)


def exact(given: Given, wanted: Collection[str]) -> Found:
    """Stationary numbers under a given r, for any laws."""
    jobs, spots = _case(given)
    found = stationary.under_level(jobs, spots, given.number("r"), given.number("k", default=K))
    return {
        "delay": found.delay_h,
        "cost": found.cost,
        "spot_busy": found.spot_busy,
        "time_busy": found.time_busy,
        "pi": found.levels,
    }


def exact_optimum(given: Given, wanted: Collection[str]) -> Found:
    """r* and its cost, for any laws."""
    jobs, spots = _case(given)
    found = stationary.fixpoint(jobs, spots, given.number("delta"), given.number("k", default=K))
    return {"r_star": found.r_star, "cost": found.cost}


def age_aware(given: Given, wanted: Collection[str]) -> Found:
    """The least cost of any policy that sees the time since the last spot."""
    described = given.text("case", default="")
    named = re.findall(r"[A-Za-z-]+\([^()]*\)", described)
    jobs = laws.parse(given.text("jobs", default=named[0] if named else "Poisson(1/12)"))
    spots = laws.parse(given.text("spots", default=named[-1] if named else CASES["bath"]))
    if not isinstance(jobs, Exponential):
        raise BadInput("case", described, "must have Poisson jobs")
    price = re.search(r"\bk ?= ?([0-9.]*[0-9])", described)
    k = given.number("k", default=float(price[1]) if price else K)
    found = bounds.level_and_age(jobs.mean, spots, given.number("delta"), k)
    return {"lower_bound_cost": found.cost, "cost": found.cost}


def algorithm1_step(given: Given, wanted: Collection[str]) -> Found:
    """One step of Algorithm 1's level."""
    r, delay, delta = given.number("r"), given.number("d_hat"), given.number("delta")
    return {"r_next": next_level(r, delay, delta, given.number("alpha"), given.number("r_max"))}


def algorithm1_admission(given: Given, wanted: Collection[str]) -> Found:
    """The probability that a job joins, at each queue length."""
    r = given.number("r")
    found = [admit_probability(r, int(n)) for n in given.numbers("queue_lengths", "queue_length", count=1)]
    return {"admit_probability": found}


FAMILIES: dict[str, Evaluate] = {
    "p1.thm1.": theorem1,
    "p1.thm2.": theorem2,
    "p1.threshold.": threshold,
    "p1.singleslot.": one_slot,
    "p1.thm3.": theorem3,
    "p1.cor.": corollaries,
    "p1.thm5.": theorem5,
    "p1.mm.rstar.": markov_optimum,
    "p1.mm.r.": markov_level,
    "p1.bath.": bath_tub,
    "p1.exact.": exact,
    "p1.exact.rstar.": exact_optimum,
    "p1.ageaware.": age_aware,
    "p1.alg1.step.": algorithm1_step,
    "p1.alg1.admission.": algorithm1_admission,
}


def _by_pattern(
    patterns: list[tuple[str, Callable[[float], Any]]], wanted: Collection[str], given: Given
) -> dict[str, Any]:
    """Outputs whose names hold an argument: F_12, LS_1_12 (one twelfth), delay_p05 (one half), p_for_delta3."""
    found = {}
    for name in wanted:
        for pattern, formula in patterns:
            match = re.fullmatch(pattern, name)
            if match:
                found[name] = attempt(partial(formula, _argument(name, match[1], given)))
                break
    return found


def _argument(name: str, written: str, given: Given) -> float:
    if not written:
        return given.number("delta")
    if re.fullmatch(r"0\d+", written):  # a decimal point left out: 05 is .5
        return float(f"0.{written[1:]}")
    fraction = re.fullmatch(r"(\d+)_(\d+)", written)
    if fraction:
        return float(fraction[1]) / float(fraction[2])
    try:
        return float(written)
    except ValueError as error:
        raise BadInput(name, written, "must end in a number") from error


def _law(given: Given, name: str, rate: str) -> Law:
    """A law by name, with parameters or (exp, det) with the mean that is given beside it."""
    text = given.text(name, default="exp")
    if "(" in text:
        return laws.parse(text)
    return laws.parse(
        f"{text}({given.number('spot_mean') if 'spot_mean' in given else given.mean_h(rate)!r})"
    )


def _case(given: Given) -> tuple[Law, Law]:
    """(jobs, spots), named or by the case: spots before the underscore (exp24 is exp(24)), jobs after it."""
    spots, _, jobs = given.text("case", default="_").partition("_")
    return (
        laws.parse(given.text("jobs", default=_spelled(jobs))),
        laws.parse(given.text("spots", default=_spelled(spots))),
    )


def _spelled(word: str) -> str:
    number = re.fullmatch(r"([a-z]+)(\d+)", word)
    return CASES.get(word, f"{number[1]}({number[2]})" if number else word)
