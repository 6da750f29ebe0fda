"""Formulas behind reference vectors: a family is the head of a vector's id, p1 of paper B (hours, lambda as `inv_lam`), p2 of
paper A (hazards per hour, seconds inside). An evaluator takes the inputs and the wanted names and returns outputs by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from controller.core.admission import admission, schedule
from controller.core.checkpointing import intervals
from controller.core.network import sharing
from controller.core.placement import hazard, select
from controller.core.queueing.controllers.algorithm1 import next_level
from controller.core.queueing.controllers.fixed import admit_probability
from experiments.theory.domain import DomainError
from experiments.theory.laws import BathTub, Deterministic, Exponential, Gamma, Law, Uniform
from experiments.theory.paper_a.theorems import residual_for_research
from experiments.theory.paper_b import bounds, costs, markov, single_slot, stationary, waits
from topologies.spec import DirectedLink, ResearchReserve

HOUR_S, K = 3600.0, 10.0
LINK = DirectedLink("source", "switch")
INFINITIES = {"inf": math.inf, "+inf": math.inf, "infinity": math.inf, "-inf": -math.inf}
Found = Mapping[str, Any]


class BadInput(Exception):
    """An input is missing, or of another kind than the family takes: no refusal of a formula."""


class Given(dict[str, Any]):
    """Inputs of a vector; of several names for one thing the first that is there counts."""

    def number(self, *names: str, default: float | None = None) -> float:
        """Return a number, infinity included. BadInput: not there, or no number."""
        return as_number(self._first(names, default))

    def numbers(self, *names: str, default: float | None = None, count: int = 1) -> list[float]:
        """Return a list of numbers; one number stands for `count` of it."""
        found = self._first(names, default)
        return [as_number(each) for each in found] if isinstance(found, list) else [as_number(found)] * count

    def mean_h(self, rate: str) -> float:
        """Return 1/rate, from its exact inverse where that is given."""
        return self.number(f"inv_{rate}") if f"inv_{rate}" in self else 1.0 / self.number(rate)

    def _first(self, names: tuple[str, ...], default: object) -> Any:
        found = next((self[name] for name in names if self.get(name) is not None), default)
        if found is None:
            raise BadInput(f"input {names[0]} is missing")
        return found


def as_number(value: object) -> float:
    """Return the number that a JSON value stands for, "inf" included. BadInput: none."""
    if isinstance(value, str) and value.strip().lower() in INFINITIES:
        return INFINITIES[value.strip().lower()]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput(f"{value!r} must be a number")
    return float(value)


def attempt(formula: Callable[..., Any], *arguments: Any) -> Any:
    """Return the formula's value, or the error of its domain in its place."""
    try:
        return formula(*arguments)
    except (DomainError, ValueError) as error:
        return error


# ---------------------------------------------------------------- laws as the papers write them

LAWS: dict[str, Callable[..., Law]] = {
    "exp": Exponential,
    "exponential": Exponential,
    "m": Exponential,
    "poisson": lambda rate: Exponential(1.0 / rate),
    "uniform": Uniform,
    "unif": Uniform,
    "u": Uniform,
    "gamma": Gamma,
    "det": Deterministic,
    "deterministic": Deterministic,
    "constant": Deterministic,
    "d": Deterministic,
    "bathtub": BathTub,
    "bath": BathTub,
}
CASES = {"bath": "bathtub(.5,1,.8,24)", "poisson": "Poisson(1/12)", "gamma": "Gamma(12,1)"}
# a parameter: .5, shape12, tau1=1, 1/12
NUMBER = re.compile(
    r"(?:[a-z_]\w* *= *|[a-z_]+ *)??(\d*\.?\d+(?:e[+-]?\d+)?|\d+\.)(?:/(\d*\.?\d+))?", re.IGNORECASE
)


def law_of(text: str) -> Law:
    """Return a law: exp(12) has mean 12, Poisson(1/12) too; gamma(.25,48), bathtub(.5,1,.8,24). ValueError: none."""
    found = re.fullmatch(r"\s*([a-z-]+)\s*\((.*)\)\s*", text, re.IGNORECASE)
    make = LAWS.get(found[1].lower().replace("-", "")) if found else None
    parts = [NUMBER.fullmatch(part.strip()) for part in found[2].split(",")] if found else []
    if make is None or None in parts:
        raise ValueError(f"no law: {text!r}")
    return make(*(float(part[1]) / float(part[2] or 1.0) for part in parts if part))


def named_law(given: Given, name: str, rate: str) -> Law:
    """Return a law with parameters, or (exp, det) with the mean that is given beside it."""
    text = given.get(name, "exp")
    if "(" in text:
        return law_of(text)
    return law_of(f"{text}({given.number('spot_mean') if 'spot_mean' in given else given.mean_h(rate)!r})")


def case_of(given: Given) -> tuple[Law, Law]:
    """Return (jobs, spots), named or by the case: spots before the underscore (exp24 is exp(24)), jobs after it."""

    def spelled(word: str) -> str:
        return CASES.get(word) or re.sub(r"^([a-z]+)(\d+)$", r"\1(\2)", word)

    spots, _, jobs = given.get("case", "_").partition("_")
    return law_of(given.get("jobs") or spelled(jobs)), law_of(given.get("spots") or spelled(spots))


def by_pattern(
    patterns: Mapping[str, Callable[[float], Any]], wanted: Collection[str], given: Given
) -> Found:
    """Return outputs whose names hold an argument: F_12, LS_1_12 (one twelfth), delay_p05 (one half), p_for_delta3."""
    found = {}
    for name in wanted:
        for pattern, formula in patterns.items():
            if match := re.fullmatch(pattern, name):
                written = re.sub(r"^0(\d+)$", r"0.\1", match[1]).replace("_", "/")
                above, _, below = written.partition("/")
                argument = float(above) / float(below or 1.0) if written else given.number("delta")
                found[name] = attempt(formula, argument)
                break
    return found


# ---------------------------------------------------------------- paper B


def threshold(given: Given, _: Collection[str]) -> Found:
    """Theorem 2's range of delays, as printed and as it is."""
    jobs, spots = named_law(given, "jobs", "lam"), named_law(given, "spots", "mu")
    printed = attempt(costs.printed_threshold_h, jobs, spots)
    longest = attempt(costs.longest_one_slot_delay_h, jobs, spots)
    return {
        **dict.fromkeys(("threshold", "paper_P_A_le_S_over_lam", "paper_threshold"), printed),
        **dict.fromkeys(("true_max_single_slot_delay", "true_threshold"), longest),
        "P_A_le_S": attempt(costs.job_before_spot, jobs, spots),
    }


def one_slot(given: Given, wanted: Collection[str]) -> Found:
    """One slot for any law of spots; names of outputs hold their argument (`cost_p05`, `p_for_delta3`)."""
    mean_job, k, spots = given.mean_h("lam"), given.number("k", default=K), named_law(given, "spots", "mu")
    named: dict[str, Callable[[], Any]] = {
        "LS_at_lam": lambda: spots.laplace(1.0 / mean_job),
        "theorem2_formula": lambda: costs.cost_of_one_slot(k, spots.mean, given.number("delta")),
        "paper_threshold": lambda: costs.printed_threshold_h(Exponential(mean_job), spots),
        "true_threshold": lambda: single_slot.delay_h(mean_job, spots, 1.0),
    }

    def at_delta(delta: float) -> float:
        return single_slot.cost(mean_job, spots, single_slot.join_probability(mean_job, spots, delta), k)

    patterns: dict[str, Callable[[float], Any]] = {
        r"p_for_delta(.*)": lambda delta: single_slot.join_probability(mean_job, spots, delta),
        r"cost_at_delta(.*)": at_delta,
        r"delay_p(.+)": lambda p: single_slot.delay_h(mean_job, spots, p),
        r"cost_p(.+)": lambda p: single_slot.cost(mean_job, spots, p, k),
    }
    found = {name: attempt(formula) for name, formula in named.items() if name in wanted}
    return found | by_pattern(patterns, wanted, given)


def corollaries(given: Given, _: Collection[str]) -> Found:
    """Corollaries 1, 3 and 4, and Remark 2."""
    means = given.mean_h("lam"), given.mean_h("mu"), given.number("delta")
    return {
        "EW": attempt(waits.mean_wait_allowed_h, means[0], means[2]),
        "cor1_p": attempt(waits.share_that_waits, *means),
        "cor3_laplace_target": attempt(waits.laplace_target, *means),
        "remark2_phi": attempt(waits.exponential_wait_rate_per_h, *means),
        "cor4_X": attempt(waits.fixed_wait_h, *means),
    }


def markov_level(given: Given, _: Collection[str]) -> Found:
    """Poisson jobs and spots under a given r (Theorem 5: a whole N)."""
    level = given.number("r", "N")
    found = markov.under_level(given.mean_h("lam"), given.mean_h("mu"), level, given.number("k", default=K))
    return {
        "delay": found.delay_h,
        "delta_N": found.delay_h,
        "cost": found.cost,
        "pi": found.levels,
        "pi0": found.empty,
    }


def markov_optimum(given: Given, _: Collection[str]) -> Found:
    """Theorem 4: r* and its cost, for Poisson jobs and spots."""
    means = given.mean_h("lam"), given.mean_h("mu")
    found = markov.optimum(*means, given.number("delta"), given.number("k", default=K))
    return {"r_star": found.r_star, "cost": found.cost}


def bath_tub(given: Given, wanted: Collection[str]) -> Found:
    """The bath-tub law: moments, F, density, quantiles and transform (`F_12`, `LS_1_12`)."""
    law = BathTub(given.number("A"), given.number("tau1"), given.number("tau2"), given.number("b"))
    moments = {"L": law.longest, "mean": law.mean, "ES2": law.second_moment}
    patterns: dict[str, Callable[[float], Any]] = {
        r"F_(.+)": lambda t: float(law.cdf(t)),
        r"f_(.+)": lambda t: float(law.pdf(t)),
        r"ppf_(.+)": lambda percent: law.quantile(percent / 100.0),
        r"LS_(.+)": law.laplace,
    }
    return moments | by_pattern(patterns, wanted, given)


def exact(given: Given, _: Collection[str]) -> Found:
    """Stationary numbers under a given r, for any laws."""
    found = stationary.under_level(*case_of(given), given.number("r"), given.number("k", default=K))
    return {
        "delay": found.delay_h,
        "cost": found.cost,
        "spot_busy": found.spot_busy,
        "time_busy": found.time_busy,
        "pi": found.levels,
    }


def exact_optimum(given: Given, _: Collection[str]) -> Found:
    """r* and its cost, for any laws."""
    found = stationary.fixpoint(*case_of(given), given.number("delta"), given.number("k", default=K))
    return {"r_star": found.r_star, "cost": found.cost}


def age_aware(given: Given, _: Collection[str]) -> Found:
    """The least cost of any policy that sees the time since the last spot; the case may be described in words."""
    described = given.get("case", "")
    named = re.findall(r"[A-Za-z-]+\([^()]*\)", described) or [CASES["poisson"], CASES["bath"]]
    jobs, spots = law_of(given.get("jobs") or named[0]), law_of(given.get("spots") or named[-1])
    price = re.search(r"\bk ?= ?([0-9.]*[0-9])", described)
    k = given.number("k", default=float(price[1]) if price else K)
    cost = bounds.level_and_age(jobs.mean, spots, given.number("delta"), k).cost
    return {"lower_bound_cost": cost, "cost": cost}


def step(given: Given, _: Collection[str]) -> Found:
    """One step of Algorithm 1's level."""
    names = ("r", "d_hat", "delta", "alpha", "r_max")
    return {"r_next": next_level(*(given.number(name) for name in names))}


def admits(given: Given, _: Collection[str]) -> Found:
    """The probability that a job joins, at each queue length."""
    lengths = given.numbers("queue_lengths", "queue_length")
    return {"admit_probability": [admit_probability(given.number("r"), int(n)) for n in lengths]}


# ---------------------------------------------------------------- paper A


def _per(given: Given) -> float:
    return HOUR_S if "lam_per_h" in given else 1.0


def _job(given: Given) -> tuple[float, float, float]:
    rate = given.number("lam_per_h", "lam_per_s", "lam") / _per(given)
    return rate, given.number("C_bytes", "C"), given.number("B_bytes_per_s", "B", "b", "b_bytes_per_s")


def _least_cost(hazard_per_s: float, payload: float, rate: float) -> float:
    return math.sqrt(2.0 * hazard_per_s * intervals.transfer_s(payload, rate)) if hazard_per_s else 0.0


def lemma1(given: Given, wanted: Collection[str]) -> Found:
    """Lemma 1: the interval, its cost, and the cost at other intervals (`L_at_600s`)."""
    job = _job(given)
    interval_s = intervals.local_interval_s(*job)
    found = {"delta_s": interval_s, "delta_min": interval_s / 60.0, "cost": _least_cost(*job)}
    at = {name: re.fullmatch(r"L_at_([0-9.]+)s", name) for name in wanted}
    hazard_per_s, write_s = job[0], intervals.transfer_s(*job[1:])
    costs = {name: (hazard_per_s * float(m[1]) / 2.0 + write_s / float(m[1])) for name, m in at.items() if m}
    return found | costs


def allocation(given: Given, _: Collection[str]) -> Found:
    """Theorem 1 and Lemma 2: the joint rates, with the intervals and the cost that they give."""
    payloads = given.numbers("C_bytes", "C")
    hazards = given.numbers("lam_per_h", "lam_per_s", "lam", count=len(payloads))
    caps = given.numbers("W", "W_bytes_per_s", default=math.inf, count=len(payloads))
    budget, rows = given.number("B_ckpt", "B"), zip(payloads, hazards, caps, strict=True)
    jobs = [
        intervals.CheckpointJob(f"{n:09d}", payload, rate / _per(given), (LINK,), cap)
        for n, (payload, rate, cap) in enumerate(rows)
    ]
    plans = intervals.plan_as_printed(jobs, {LINK: budget})
    rates = [plans[job.key].rate_bytes_per_s for job in jobs]
    priced = [(job.hazard_per_s, job.payload_bytes, rate) for job, rate in zip(jobs, rates, strict=True)]
    return {
        "b": rates,
        "used": math.fsum(rates),
        "unused": budget - math.fsum(rates),
        "delta_s": [intervals.local_interval_s(*each) for each in priced],
        "total_cost": math.fsum(_least_cost(*each) for each in priced),
    }


def theorem2(given: Given, _: Collection[str]) -> Found:
    """Theorem 2: the saving of intervals that follow the state."""
    hazards, rates = given.numbers("lam", "lam_per_h"), given.numbers("B")
    payload = given.number("C", "C_bytes", default=1.0)
    found = intervals.adaptivity_gap(hazards, rates, payload)
    means = float(np.mean(hazards)), float(np.mean([1.0 / rate for rate in rates]))
    fixed_s = intervals.stationary_interval_s(payload, *means)
    return {"ratio": found.ratio, "delta_cs": found.defect, "gap": found.gap, "delta0": fixed_s}


def equation9(given: Given, _: Collection[str]) -> Found:
    """Eq. (9): Young's interval between its floor and its cap."""
    job, budget_s = _job(given), given.number("L_max_s", default=math.inf)
    beta = given.number("beta", default=intervals.BETA)
    found = intervals.constrained_interval(*job, budget_s, beta)
    return {
        "young": intervals.local_interval_s(*job),
        "floor": intervals.network_floor_s(*job[1:], beta),
        "cap": 2.0 * budget_s,
        "delta": found.interval_s,
        "loss_budget_infeasible": found.loss_budget_infeasible,
        "physically_infeasible": intervals.transfer_s(*job[1:]) > 2.0 * budget_s,
        "b_needed": intervals.bandwidth_needed(job[1], budget_s, beta),
        "expected_loss": found.expected_loss_s,
    }


def hazard_bounds(given: Given, _: Collection[str]) -> Found:
    """Events over exposure, with exact Poisson bounds."""
    seen = hazard.Experience(given.number("events", "n"), given.number("exposure_h", "T"))
    found = hazard.bounds(seen, given.number("level", default=0.95))
    return {"mle": found.mle, "lower": found.lower, "upper": found.upper}


def final_checkpoint(given: Given, _: Collection[str]) -> Found:
    """Section V-A: the time of a last checkpoint, and whether the notice has room for it."""
    copied_s = intervals.transfer_s(given.number("C_bytes", "C"), given.number("b", "bw"))
    time_s = copied_s + given.number("T_r", default=0.0)
    return {"time": time_s, "feasible": time_s <= given.number("tau")}


def survival(given: Given, _: Collection[str]) -> Found:
    """Section VI-B: survival and expected reclaims over an hourly table."""
    table = [rate / HOUR_S for rate in given.numbers("hourly_rates", count=24)]
    when = given.number("t0_h", default=0.0) * HOUR_S, given.number("T_rem_h") * HOUR_S
    return {
        "S": attempt(hazard.survival, table, *when),
        "expected_reclaims": attempt(hazard.expected_reclaims, table, *when),
    }


def _migration_s(given: Given, rate: float) -> float:
    return intervals.transfer_s(given.number("C_bytes", "C"), rate) + given.number("T_r", default=0.0)


def score(given: Given, _: Collection[str]) -> Found:
    """Eq. (10) and (11): transfer time and score of a destination."""
    move_s = _migration_s(given, given.number("bw", "b"))
    onward_s = given.number("Tbar_mig_s", default=move_s)
    alpha = given.number("alpha", default=select.ALPHA)
    return {
        "score_s": float(select.score_s(move_s, 1.0 - given.number("S"), onward_s, alpha)),
        "T_mig_s": move_s,
    }


def locality(given: Given, _: Collection[str]) -> Found:
    """Lemma 3, and whether Algorithm 2 then looks at the source's building alone."""
    local = given.numbers("B_local", "bw_local")
    cross = given.numbers("B_core", "B_cross", "bw_cross")
    local_s, cross_s = (min(_migration_s(given, rate) for rate in each) for each in (local, cross))
    return {
        "T_local_s": local_s,
        "T_cross_s": cross_s,
        "separated": min(local) >= max(cross),
        "local_no_slower": local_s <= cross_s,
        "filtered": len(local) >= max(1.0, given.number("k_min", default=1.0)),
    }


def static_interval(given: Given, _: Collection[str]) -> Found:
    """Appendix C-C: the interval of Static-Ckpt from mean size, mean bandwidth, and events over exposure."""
    per_h = hazard_bounds(given, ())["mle"] if "events" in given else given.number("lam_per_h", "lam")
    job = given.number("C_bytes", "C"), given.number("B_bytes_per_s", "B")
    interval_s = intervals.local_interval_s(per_h / HOUR_S, *job)
    return {
        "C_time_s": intervals.transfer_s(*job),
        "lam_per_h": per_h,
        "delta_s": interval_s,
        "delta_min": interval_s / 60.0,
    }


def binding_regimes(given: Given, _: Collection[str]) -> Found:
    """Appendix C-A: B_eff = min(W, B), the share of epochs in which B binds, and eq. (6)'s ratio of all and of those."""
    link, write = given.numbers("B"), given.number("W")
    hazards = given.numbers("lam", "lam_per_h", count=len(link))
    binding = [(rate, each) for rate, each in zip(hazards, link, strict=True) if each <= write]

    def ratio(rates: list[float], bandwidths: list[float]) -> float:
        return intervals.adaptivity_gap(rates, bandwidths, 1.0).ratio

    return {
        "share_B_binding": len(binding) / len(link),
        "ratio": attempt(ratio, hazards, [min(each, write) for each in link]),
        "ratio_B_binding": attempt(ratio, [rate for rate, _ in binding], [each for _, each in binding]),
    }


def equation12(given: Given, _: Collection[str]) -> Found:
    """Eq. (12): the least rate that meets the deadline."""
    times_s = given.number("tau"), given.number("T_r", default=0.0)
    rate = admission.minimum_rate(given.number("C_bytes", "C"), *times_s)
    return {"r_min": rate, "infeasible": math.isinf(rate)}


def reserve(given: Given, _: Collection[str]) -> Found:
    """Section VII-B: the reserve as printed, and what it leaves to migrations."""
    capacity = given.number("B")
    of = ResearchReserve(given.number("beta", default=0.3), given.number("B_min", default=0.0))
    printed = max(of.beta * capacity, of.minimum_bytes_per_s)
    return {"B_res": printed, "B_mig": of.migration_share_bytes_per_s(capacity)}


def admissions(given: Given, _: Collection[str]) -> Found:
    """Section VII-A: the jobs that each rule admits on one link."""
    payloads = given.numbers("C", "C_bytes")
    slacks_s = given.numbers("slack_tau_minus_Tr", "slack", count=len(payloads))
    requests = [
        schedule.MigrationRequest(f"{n:09d}", payload, slack_s, 0.0, (LINK,))
        for n, (payload, slack_s) in enumerate(zip(payloads, slacks_s, strict=True))
    ]

    def admitted(rule: admission.Admit) -> set[int]:
        return {int(key) for key in rule(requests, 0.0, {LINK: given.number("B_mig")}, ()).admitted}

    stop = admitted(admission.edf_stop)
    return {
        "r_min": [admission.minimum_rate(each.payload_bytes, each.deadline_s, 0.0) for each in requests],
        "edf_stop": stop,
        "edf_stop_count": len(stop),
        "fluid_moore_hodgson_count": len(admitted(admission.fluid_edf)),
    }


def shares(given: Given, _: Collection[str]) -> Found:
    """Section VII-B: max-min totals."""
    floors = given.numbers("r_min", default=0.0)
    caps, share = given.numbers("cap", default=math.inf, count=len(floors)), given.number("B_mig")

    def totals() -> list[float]:
        demands = [
            sharing.Demand(f"{n:09d}", (LINK,), 1.0, min(floor, cap), cap)
            for n, (floor, cap) in enumerate(zip(floors, caps, strict=True))
        ]
        rates = sharing.fill(demands, {LINK: share}).rates
        return [rates[each.key] for each in demands]

    return {"max_min_total": attempt(totals)}


def theorem4(given: Given, _: Collection[str]) -> Found:
    """Theorem 4: the rate that migrations leave to research."""
    phi, burst = given.number("phi", default=1.0), given.number("u", "u_bar", default=0.0)
    return {"residual": residual_for_research(given.number("B_min"), phi, burst)}


FAMILIES: dict[str, Callable[[Given, Collection[str]], Found]] = {
    "p1.thm1.": lambda given, _: {
        "cost": costs.cost_per_job(
            given.number("k", default=K),
            given.mean_h("lam"),
            given.mean_h("mu"),
            given.number("pi0_at_spot_epochs", "pi0"),
        )
    },
    "p1.thm2.": lambda given, _: {
        "cost": costs.cost_of_one_slot(
            given.number("k", default=K), given.mean_h("mu"), given.number("delta")
        )
    },
    "p1.threshold.": threshold,
    "p1.singleslot.": one_slot,
    "p1.thm3.": lambda given, _: {
        "EW": waits.mean_wait_allowed_h(given.mean_h("lam"), given.number("delta"))
    },
    "p1.cor.": corollaries,
    "p1.thm5.": markov_level,
    "p1.mm.rstar.": markov_optimum,
    "p1.mm.r.": markov_level,
    "p1.bath.": bath_tub,
    "p1.exact.": exact,
    "p1.exact.rstar.": exact_optimum,
    "p1.ageaware.": age_aware,
    "p1.alg1.step.": step,
    "p1.alg1.admission.": admits,
    "p2.lemma1.": lemma1,
    "p2.thm1.": allocation,
    "p2.lemma2.": allocation,
    "p2.thm2.": theorem2,
    "p2.eq9.": equation9,
    "p2.hazard.": hazard_bounds,
    "p2.finalckpt.": final_checkpoint,
    "p2.survival.": survival,
    "p2.score.": score,
    "p2.locality.": locality,
    "p2.appC.static.": static_interval,
    "p2.appC.binding.": binding_regimes,
    "p2.eq12.": equation12,
    "p2.bres.": reserve,
    "p2.adm.": admissions,
    "p2.maxmin.": shares,
    "p2.thm4.": theorem4,
}
