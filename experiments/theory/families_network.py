"""Evaluators of paper A's vectors (ids p2.*), by id family. Hazards come per hour and are per second inside."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from typing import Any

from controller.core.checkpointing.intervals import BETA
from controller.core.placement.select import ALPHA
from experiments.theory.domain import DomainError
from experiments.theory.families import Evaluate, Found, attempt
from experiments.theory.paper_a import destinations, intervals, isolation
from experiments.theory.vectors import Given

HOUR_S = 3600.0


def lemma1(given: Given, wanted: Collection[str]) -> Found:
    """Lemma 1: the interval, its cost, and the cost at other intervals (`L_at_600s`)."""
    job = _hazard(given), given.number("C_bytes", "C"), given.number("B_bytes_per_s", "B", "b")
    interval_s = attempt(intervals.local_interval_s, *job)
    found = {
        "delta_s": interval_s,
        "delta_min": interval_s if isinstance(interval_s, DomainError) else interval_s / 60.0,
        "cost": attempt(intervals.least_cost_rate, *job),
    }
    for name in wanted:
        at = re.fullmatch(r"L_at_([0-9.]+)s", name)
        if at:
            found[name] = attempt(intervals.cost_rate, float(at[1]), *job)
    return found


def allocation(given: Given, wanted: Collection[str]) -> Found:
    """Theorem 1 and Lemma 2: the joint rates, with the intervals and the cost that they give."""
    payloads = given.numbers("C_bytes", "C", count=1)
    hazards = [
        rate / _per(given) for rate in given.numbers("lam_per_h", "lam_per_s", "lam", count=len(payloads))
    ]
    caps = given.numbers("W", "W_bytes_per_s", default=math.inf, count=len(payloads))
    budget = given.number("B_ckpt", "B")
    found = intervals.allocation(hazards, payloads, budget, caps)
    used = math.fsum(found.rates)
    return {
        "b": found.rates,
        "used": used,
        "unused": budget - used,
        "delta_s": found.intervals_s,
        "total_cost": found.total_cost,
    }


def theorem2(given: Given, wanted: Collection[str]) -> Found:
    """Theorem 2: what adapting to the state saves."""
    hazards, rates = given.numbers("lam", "lam_per_h", count=1), given.numbers("B", count=1)
    payload = given.number("C", "C_bytes", default=1.0)
    found = intervals.adaptivity_gap(hazards, rates, payload)
    return {
        "ratio": found.ratio,
        "delta_cs": found.defect,
        "gap": found.gap,
        "delta0": intervals.fixed_interval_s(hazards, rates, payload),
    }


def equation9(given: Given, wanted: Collection[str]) -> Found:
    """Eq. (9): Young's interval between its floor and its cap."""
    payload, rate = given.number("C_bytes", "C"), given.number("b", "b_bytes_per_s")
    budget_s, beta = given.number("L_max_s", default=math.inf), given.number("beta", default=BETA)
    hazard = _hazard(given)
    found = intervals.constrained_interval(hazard, payload, rate, budget_s, beta)
    return {
        "young": intervals.local_interval_s(hazard, payload, rate),
        "floor": intervals.network_floor_s(payload, rate, beta),
        "cap": 2.0 * budget_s,
        "delta": found.interval_s,
        "loss_budget_infeasible": found.loss_budget_infeasible,
        "physically_infeasible": found.physically_infeasible,
        "b_needed": found.bandwidth_needed_bytes_per_s,
        "expected_loss": found.expected_loss_s,
    }


def hazard_bounds(given: Given, wanted: Collection[str]) -> Found:
    """Events over exposure, with exact Poisson bounds."""
    found = intervals.hazard_bounds(
        given.number("events", "n"),
        given.number("exposure_h", "T"),
        given.number("level", default=0.95),
    )
    return {"mle": found.mle, "lower": found.lower, "upper": found.upper}


def final_checkpoint(given: Given, wanted: Collection[str]) -> Found:
    """Section V-A: the time of a last checkpoint, and whether the notice has room for it."""
    time_s = attempt(
        intervals.final_checkpoint_s,
        given.number("C_bytes", "C"),
        given.number("b", "bw"),
        given.number("T_r", default=0.0),
    )
    feasible = time_s if isinstance(time_s, DomainError) else time_s <= given.number("tau")
    return {"time": time_s, "feasible": feasible}


def survival(given: Given, wanted: Collection[str]) -> Found:
    """Section VI-B: survival and expected reclaims over an hourly table."""
    table = [rate / HOUR_S for rate in given.numbers("hourly_rates", count=24)]
    when = given.number("t0_h", default=0.0) * HOUR_S, given.number("T_rem_h") * HOUR_S
    return {
        "S": attempt(destinations.survival, table, *when),
        "expected_reclaims": attempt(destinations.expected_reclaims, table, *when),
    }


def score(given: Given, wanted: Collection[str]) -> Found:
    """Eq. (10) and (11): transfer time and score of a destination."""
    move = destinations.migration_s(
        given.number("C_bytes", "C"),
        given.number("bw", "b"),
        given.number("T_r", default=0.0),
    )
    onward = given.number("Tbar_mig_s", default=move)
    alpha = given.number("alpha", default=ALPHA)
    return {"score_s": attempt(destinations.score_s, move, given.number("S"), onward, alpha), "T_mig_s": move}


def locality(given: Given, wanted: Collection[str]) -> Found:
    """Lemma 3, and whether Algorithm 2 then looks at the source's building alone."""
    payload, restart_s = given.number("C_bytes", "C"), given.number("T_r", default=0.0)
    local = given.numbers("B_local", "bw_local", count=1)
    cross = given.numbers("B_core", "B_cross", "bw_cross", count=1)
    found = destinations.locality(payload, local, cross, restart_s)
    return {
        "T_local_s": found.local_s,
        "T_cross_s": found.cross_s,
        "separated": found.separated,
        "local_no_slower": found.local_s <= found.cross_s,
        "filtered": len(local) >= max(1.0, given.number("k_min", default=1.0)),
    }


def static_interval(given: Given, wanted: Collection[str]) -> Found:
    """Appendix C-C: the interval of Static-Ckpt from mean size, mean bandwidth, and events over exposure."""
    time_s = attempt(intervals.write_s, given.number("C_bytes", "C"), given.number("B_bytes_per_s", "B"))
    if "events" in given:
        per_h = attempt(intervals.hazard_bounds, given.number("events"), given.number("exposure_h", "T"))
        per_h = per_h if isinstance(per_h, DomainError) else per_h.mle
    else:
        per_h = given.number("lam_per_h", "lam")
    interval_s = (
        per_h
        if isinstance(per_h, DomainError)
        else attempt(
            intervals.local_interval_s,
            per_h / HOUR_S,
            given.number("C_bytes", "C"),
            given.number("B_bytes_per_s", "B"),
        )
    )
    return {
        "C_time_s": time_s,
        "lam_per_h": per_h,
        "delta_s": interval_s,
        "delta_min": interval_s if isinstance(interval_s, DomainError) else interval_s / 60.0,
    }


def binding_regimes(given: Given, wanted: Collection[str]) -> Found:
    """Appendix C-A: B_eff = min(W, B), the share of epochs in which B binds, and eq. (6)'s ratio of all and of those."""
    link = given.numbers("B", count=1)
    hazards = given.numbers("lam", "lam_per_h", count=len(link))
    found = intervals.binding_regimes(hazards, link, given.number("W"))
    return {
        "share_B_binding": found.share,
        "ratio": found.ratio,
        "ratio_B_binding": found.ratio_where_binding,
    }


def equation12(given: Given, wanted: Collection[str]) -> Found:
    """Eq. (12): the least rate that meets the deadline."""
    rate = attempt(
        isolation.minimum_rate,
        given.number("C_bytes", "C"),
        given.number("tau"),
        given.number("T_r", default=0.0),
    )
    return {"r_min": rate, "infeasible": rate if isinstance(rate, DomainError) else math.isinf(rate)}


def reserve(given: Given, wanted: Collection[str]) -> Found:
    """Section VII-B: the reserve, and what it leaves to migrations."""
    link = given.number("B"), given.number("beta", default=0.3), given.number("B_min", default=0.0)
    return {
        "B_res": attempt(isolation.reserve, *link),
        "B_mig": attempt(isolation.migration_share, *link),
    }


def admissions(given: Given, wanted: Collection[str]) -> Found:
    """Section VII-A: the jobs that each rule admits on one link."""
    payloads = given.numbers("C", "C_bytes", count=1)
    slacks_s = given.numbers("slack_tau_minus_Tr", "slack", count=len(payloads))
    found = isolation.admissions(payloads, slacks_s, given.number("B_mig"))
    return {
        "r_min": found.minimum_rates,
        "edf_skip": set(found.edf_skip),
        "edf_stop": set(found.edf_stop),
        "smallest_demand_first": set(found.smallest_demand_first),
        "edf_skip_count": len(found.edf_skip),
        "edf_stop_count": len(found.edf_stop),
        "smallest_demand_count": len(found.smallest_demand_first),
        "fluid_moore_hodgson_count": len(found.fluid),
    }


def max_min(given: Given, wanted: Collection[str]) -> Found:
    """Section VII-B in both readings: max-min totals, and equal increments."""
    floors = given.numbers("r_min", default=0.0, count=1)
    caps = given.numbers("cap", default=math.inf, count=len(floors))
    shared: tuple[Any, ...] = (floors, caps, given.number("B_mig"))
    return {
        "max_min_total": attempt(isolation.max_min_totals, *shared),
        "equal_increment": attempt(isolation.equal_increments, *shared),
    }


def theorem4(given: Given, wanted: Collection[str]) -> Found:
    """Theorem 4: what migrations leave to research."""
    phi, burst = given.number("phi", default=1.0), given.number("u", "u_bar", default=0.0)
    return {"residual": attempt(isolation.residual_for_research, given.number("B_min"), phi, burst)}


FAMILIES: dict[str, Evaluate] = {
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
    "p2.maxmin.": max_min,
    "p2.thm4.": theorem4,
}


def _per(given: Given) -> float:
    return HOUR_S if "lam_per_h" in given else 1.0


def _hazard(given: Given) -> float:
    return given.number("lam_per_h", "lam_per_s", "lam") / _per(given)
