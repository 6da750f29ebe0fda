"""Reference vectors: recorded inputs and outputs of both papers' formulas, each held to the formula that its id names.

A few lie beside this file. More are read where they are there: `../shared/papers/reference_vectors.json` beside the
repository, and the file that the environment variable RECLAIMNET_VECTORS names. A file is
{"vectors": [{"id", "inputs", "outputs", "rel_tol"}, ...]}; numbers may be written as "inf", a refusal as "error".
Times are hours in paper B (p1); in paper A (p2) hazards are per hour and everything else is in seconds.
"""

import json
import math
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from controller.core.admission import admission, schedule
from controller.core.checkpointing import planner
from controller.core.placement import hazard, select
from controller.core.queueing.controllers.controller import next_level
from controller.core.queueing.replay import admit_probability
from controller.numerics.portable_math import cbrt
from experiments.theory.domain import DomainError
from experiments.theory.laws import BathTub, Deterministic, Exponential, Gamma, Law, Uniform, while_it_lasts
from experiments.theory.paper_a.theorems import adaptivity_gap, residual_for_research
from experiments.theory.paper_b import single_slot, stationary
from tests import checkpoint_jobs
from tests.demands import Demand, fill
from topologies.spec import DirectedLink, ResearchReserve

OURS = Path(__file__).with_name("theory_vectors.json")
RECORDED = Path(__file__).parents[2] / "shared" / "papers" / "reference_vectors.json"
NAMED = os.environ.get("RECLAIMNET_VECTORS")
FILES = [OURS, *([RECORDED] if RECORDED.exists() else []), *([Path(NAMED)] if NAMED else [])]
REL_TOL = 1e-5  # values are recorded to six digits
ROUNDING, TINY = 1e-9, 1e-18  # absolute: beside a recorded 0, and beside any value
HOUR_S, LINK = 3600.0, DirectedLink("source", "switch")
# outputs of rules that the papers compare with, and that the program does not have
OF_OTHERS = {"lower", "edf_skip", "smallest_demand_count", "equal_increment", "lower_bound_cost"}
Inputs = SimpleNamespace
Formula = Callable[..., Any]

# ---------------------------------------------------------------- inputs
DEFAULTS = {"k": 10.0, "beta": planner.BETA, "L_max_s": math.inf, "level": 0.95, "T_r": 0.0, "t0_h": 0.0, "C": 1.0}
DEFAULTS |= {"alpha": select.ALPHA, "B_min": 0.0, "k_min": 1.0, "phi": 1.0, "u": 0.0, "W": math.inf, "cap": math.inf}
SAME = {"C_bytes": "C", "lam_per_h": "lam", "B_bytes_per_s": "b", "bw": "b", "N": "r", "pi0_at_spot_epochs": "pi0"}
LAWS: dict[str, Callable[..., Law]] = {
    "exp": Exponential,
    "poisson": lambda rate: Exponential(1.0 / rate),
    "uniform": Uniform,
    "gamma": Gamma,
    "det": Deterministic,
    "bathtub": BathTub,
}
CASES = {"bath": "bathtub(.5,1,.8,24)", "poisson": "Poisson(1/12)", "gamma": "Gamma(12,1)", "exp24": "exp(24)"}


def number(value: Any) -> Any:
    """Return a JSON value with its "inf" as a number."""
    if isinstance(value, list):
        return [number(each) for each in value]
    return math.inf if value == "inf" else value


@cache
def law(text: str, mean: float = math.nan) -> Law:
    """Return a law: exp(12) has mean 12, Poisson(1/12) too; without parameters, that of this mean."""
    name, _, parameters = text.lower().partition("(")
    if not parameters:
        return LAWS[name](mean)
    parts = [re.sub("[a-z ]", "", part).partition("/") for part in parameters.rstrip(")").split(",")]
    return LAWS[name](*(float(above) / float(below or 1.0) for above, _, below in parts))


def inputs_of(given: dict[str, Any]) -> Inputs:
    """Return the inputs of a vector under one name each, with what follows from them."""
    i = Inputs(**DEFAULTS | {SAME.get(name, name): number(value) for name, value in given.items()})
    i.mean_job = given.get("inv_lam", 0.0)
    i.mean_spot = given.get("spot_mean", given.get("inv_mu", 0.0))
    spots, _, jobs = given.get("case", "").partition("_")
    jobs, spots = (CASES.get(jobs, "exp"), CASES.get(spots, "exp"))
    i.jobs = law(given.get("jobs", jobs), i.mean_job or 1.0)
    i.spots = law(given.get("spots", spots), i.mean_spot or 1.0)
    return i


# ---------------------------------------------------------------- formulas of several outputs
under_level, fixpoint = cache(stationary.under_level), cache(stationary.fixpoint)


def level(i: Inputs) -> Any:
    """Return the queue of Poisson jobs and spots under a given r."""
    return under_level(Exponential(i.mean_job), Exponential(i.mean_spot), i.r, i.k)


def best(i: Inputs) -> Any:
    return fixpoint(Exponential(i.mean_job), Exponential(i.mean_spot), i.delta, i.k)


def best_level(i: Inputs) -> float:
    """Return r*; infinite where an unlimited queue waits no longer."""
    i.r = float(stationary.MAX_LEVELS)
    return math.inf if level(i).delay_h <= i.delta * (1.0 + 1e-9) else float(best(i).r_star)


def at_most(most: float, value: float) -> float:
    if value > most * (1.0 + 1e-9):
        raise ValueError(value)
    return value


def cost_of(i: Inputs, served: float) -> float:
    """Return Theorems 1 and 2: k - (k - 1) times the share of jobs that spots serve."""
    return float(i.k - (i.k - 1.0) * at_most(1.0, served))


def before_spot(jobs: Law, spots: Law) -> float:
    """Return P(A <= S), where one of the two is Poisson."""
    if isinstance(spots, Exponential):
        return jobs.laplace(1.0 / spots.mean)
    return 1.0 - spots.laplace(1.0 / jobs.mean)


def longest_delay(i: Inputs) -> float:
    """Return the mean delay of one slot in which jobs that find it free wait for ever."""
    if isinstance(i.spots, Exponential):
        return i.spots.mean * (1.0 - before_spot(i.jobs, i.spots))
    return single_slot.delay_h(i.jobs.mean, i.spots, 1.0)


def waited(i: Inputs) -> float:
    """Return E[W] = delta/(1 - lambda delta) (Theorem 3)."""
    left = 1.0 - at_most(1.0, i.delta / i.mean_job)
    return float(i.delta / left) if left > 1e-9 else math.inf


def spare(i: Inputs) -> float:
    """Return 1 - (lambda + mu) delta, the end of the corollaries' domain being 0."""
    left = 1.0 - at_most(1.0, i.delta * (1.0 / i.mean_job + 1.0 / i.mean_spot))
    return left if left > 1e-9 else 0.0


def one_slot(i: Inputs, p: float) -> float:
    return single_slot.cost(i.mean_job, i.spots, p, i.k)


def joins(i: Inputs) -> float:
    return single_slot.join_probability(i.mean_job, i.spots, i.delta)


def bath(i: Inputs) -> BathTub:
    return BathTub(i.A, i.tau1, i.tau2, i.b)


def density(law: BathTub, t: float) -> float:
    walls = math.exp(-t / law.tau1) / law.tau1 + math.exp((t - law.b) / law.tau2) / law.tau2
    return law.share * walls if t <= law.longest else 0.0


def quantile(law: BathTub, level: float) -> float:
    return float(optimize.brentq(lambda t: float(law.cdf(t)) - level, 0.0, law.longest, xtol=1e-13))


def job(i: Inputs) -> tuple[float, float, float]:
    """Hazard a second, payload, rate."""
    per_h = i.events / i.exposure_h if hasattr(i, "events") else i.lam
    return per_h / HOUR_S, i.C, i.b


def each(value: Any, count: int) -> list[float]:
    """Return a list; one number stands for `count` of it."""
    return value if isinstance(value, list) else [value] * count


def young_s(hazard_per_s: float, payload_bytes: float, rate: float) -> float:
    sending_s = planner.transfer_s(payload_bytes, rate)
    return float(planner.best_intervals_s(np.array(sending_s), np.array(hazard_per_s)))


def plans(i: Inputs) -> list[tuple[tuple[float, float], float]]:
    """Return hazard and payload of Theorem 1's and Lemma 2's jobs, with their rates."""
    count = len(i.C)
    rows = zip(i.C, each(i.lam, count), each(i.W, count), strict=True)
    jobs = [(per_h / HOUR_S, c, w) for c, per_h, w in rows]
    demands = [
        Demand(f"{n:09d}", (LINK,), cbrt(hazard_per_s * c), cap_bytes_per_s=w)
        for n, (hazard_per_s, c, w) in enumerate(jobs)
    ]
    rates = fill(demands, {LINK: i.B_ckpt}).rates
    return [(each[:2], rates[demand.key]) for each, demand in zip(jobs, demands, strict=True)]


def constrained(i: Inputs) -> tuple[float, bool]:
    """Return eq. (9)'s interval, and whether the loss budget is infeasible."""
    hazard_per_s, payload, rate = job(i)
    one = checkpoint_jobs.job("a", payload, hazard_per_s * HOUR_S, i.L_max_s)

    def at_this_rate(jobs: planner.CheckpointJobs, *_: object) -> planner.CheckpointPlans:
        best_s = np.array([young_s(*job(i))])
        return planner._clipped(jobs, np.array([rate]), best_s, i.beta)

    found = checkpoint_jobs.plan(at_this_rate, [one], {checkpoint_jobs.TRUNK: 1.0})
    return float(found.intervals_s[0]), bool(found.infeasible[0])


def moved_s(i: Inputs, rate: float) -> float:
    return planner.transfer_s(i.C, rate) + i.T_r


def table(i: Inputs) -> tuple[list[float], float, float, float]:
    return ([rate / HOUR_S for rate in each(i.hourly_rates, 24)], i.t0_h * HOUR_S, i.T_rem_h * HOUR_S, 24.0 * HOUR_S)


def gap(i: Inputs) -> Any:
    return adaptivity_gap(each(i.lam, 1), each(i.B, 1), i.C)


def score_s(i: Inputs) -> float:
    moved = moved_s(i, i.b)
    return float(select.score_s(moved, 1.0 - i.S, getattr(i, "Tbar_mig_s", moved), i.alpha))


def binding(i: Inputs) -> list[tuple[float, float]]:
    """Return hazard and bandwidth of the epochs in which the link binds."""
    return [pair for pair in zip(each(i.lam, len(i.B)), i.B, strict=True) if pair[1] <= i.W]


def admitted(i: Inputs, rule: admission.Admit) -> set[int]:
    """Return the jobs that a rule admits on one link."""
    rows = zip(i.C, each(i.slack_tau_minus_Tr, len(i.C)), strict=True)
    asked = [schedule.MigrationRequest(f"{n:09d}", c, slack_s, 0.0, (LINK,)) for n, (c, slack_s) in enumerate(rows)]
    return {int(key) for key in rule(asked, 0.0, {LINK: i.B_mig}, ()).admitted}


def max_min(i: Inputs) -> list[float]:
    rows = zip(i.r_min, each(i.cap, len(i.r_min)), strict=True)
    demands = [Demand(f"{n:09d}", (LINK,), 1.0, min(low, cap), cap) for n, (low, cap) in enumerate(rows)]
    rates = fill(demands, {LINK: i.B_mig}).rates
    return [rates[demand.key] for demand in demands]


# ---------------------------------------------------------------- families
PRINTED: dict[str, Formula] = {
    "threshold|paper_threshold|paper_P_A_le_S_over_lam": lambda i: i.jobs.mean * before_spot(i.jobs, i.spots),
    "true_threshold|true_max_single_slot_delay": longest_delay,
    "P_A_le_S": lambda i: before_spot(i.jobs, i.spots),
}
LEVELS: dict[str, Formula] = {
    "delay|delta_N": lambda i: level(i).delay_h,
    "cost": lambda i: level(i).cost,
    "pi": lambda i: level(i).levels,
    "pi0": lambda i: level(i).levels[0],
}
ALLOCATED: dict[str, Formula] = {
    "b": lambda i: [rate for _, rate in plans(i)],
    "used": lambda i: math.fsum(rate for _, rate in plans(i)),
    "delta_s": lambda i: [young_s(*each, rate) for each, rate in plans(i)],
    "total_cost": lambda i: math.fsum(
        math.sqrt(2.0 * per_s * planner.transfer_s(payload, rate)) for (per_s, payload), rate in plans(i)
    ),
}
# the name of an output is a pattern, whose group is an argument: F_12, LS_1_12 (one twelfth), delay_p05 (one half)
FAMILIES: dict[str, dict[str, Formula]] = {
    "p1.thm1.": {"cost": lambda i: cost_of(i, i.mean_job / i.mean_spot * (1.0 - i.pi0))},
    "p1.thm2.": {"cost": lambda i: cost_of(i, i.delta / i.mean_spot)},
    "p1.threshold.": PRINTED,
    "p1.singleslot.": {
        "LS_at_lam": lambda i: i.spots.laplace(1.0 / i.mean_job),
        "theorem2_formula": lambda i: cost_of(i, i.delta / i.spots.mean),
        "paper_threshold": lambda i: i.mean_job * before_spot(Exponential(i.mean_job), i.spots),
        "true_threshold": lambda i: single_slot.delay_h(i.mean_job, i.spots, 1.0),
        r"p_for_delta\d*": joins,
        r"cost_at_delta\d*": lambda i: one_slot(i, joins(i)),
        r"delay_p(.+)": lambda i, p: single_slot.delay_h(i.mean_job, i.spots, p),
        r"cost_p(.+)": one_slot,
    },
    "p1.thm3.": {"EW": waited},
    "p1.cor.": {
        "EW": waited,
        "cor1_p": lambda i: min(1.0, waited(i) / i.mean_spot) if spare(i) >= 0.0 else None,
        "cor3_laplace_target": lambda i: spare(i) / (1.0 - i.delta / i.mean_job),
        "remark2_phi": lambda i: spare(i) / i.delta,
        "cor4_X": lambda i: -i.mean_spot * math.log(spare(i) / (1.0 - i.delta / i.mean_job)) if spare(i) else math.inf,
    },
    "p1.thm5.": LEVELS,
    "p1.mm.r.": LEVELS,
    "p1.mm.rstar.": {"r_star": best_level, "cost": lambda i: best(i).cost},
    "p1.bath.": {
        "L": lambda i: bath(i).longest,
        "mean": lambda i: bath(i).mean,
        "ES2": lambda i: float(while_it_lasts(bath(i), lambda t: 2.0 * np.asarray(t))),
        "F_(.+)": lambda i, t: float(bath(i).cdf(t)),
        "f_(.+)": lambda i, t: density(bath(i), t),
        "ppf_(.+)": lambda i, percent: quantile(bath(i), percent / 100.0),
        "LS_(.+)": lambda i, s: bath(i).laplace(s),
    },
    "p1.exact.": {
        "delay": lambda i: under_level(i.jobs, i.spots, i.r, i.k).delay_h,
        "pi": lambda i: under_level(i.jobs, i.spots, i.r, i.k).levels,
        **{
            name: lambda i, name=name: getattr(under_level(i.jobs, i.spots, i.r, i.k), name)
            for name in ("cost", "spot_busy", "time_busy")
        },
    },
    "p1.exact.rstar.": {
        "r_star": lambda i: fixpoint(i.jobs, i.spots, i.delta, i.k).r_star,
        "cost": lambda i: fixpoint(i.jobs, i.spots, i.delta, i.k).cost,
    },
    "p1.alg1.step.": {"r_next": lambda i: next_level(i.r, i.d_hat, i.delta, i.alpha, i.r_max)},
    "p1.alg1.admission.": {
        "admit_probability": lambda i: [admit_probability(i.r, int(n)) for n in i.queue_lengths]
    },
    "p2.lemma1.": {
        "delta_s": lambda i: young_s(*job(i)),
        "delta_min": lambda i: young_s(*job(i)) / 60.0,
        "cost": lambda i: math.sqrt(2.0 * job(i)[0] * planner.transfer_s(i.C, i.b)) if i.lam else 0.0,
        r"L_at_(\d+)s": lambda i, s: job(i)[0] * s / 2.0 + planner.transfer_s(*job(i)[1:]) / s,
    },
    "p2.thm1.": ALLOCATED,
    "p2.lemma2.": ALLOCATED,
    "p2.thm2.": {
        "ratio": lambda i: gap(i).ratio,
        "delta_cs": lambda i: gap(i).defect,
        "gap": lambda i: gap(i).gap,
        "delta0": lambda i: math.sqrt(2.0 * i.C * float(np.mean([1.0 / rate for rate in i.B])) / float(np.mean(i.lam))),
    },
    "p2.eq9.": {
        "young": lambda i: young_s(*job(i)),
        "floor": lambda i: planner.transfer_s(i.C, i.b) / i.beta,
        "cap": lambda i: 2.0 * i.L_max_s,
        "delta": lambda i: constrained(i)[0],
        "loss_budget_infeasible": lambda i: constrained(i)[1],
        "physically_infeasible": lambda i: planner.transfer_s(i.C, i.b) > 2.0 * i.L_max_s,
        "b_needed": lambda i: planner.transfer_s(i.C, 2.0 * i.beta * i.L_max_s),
        "expected_loss": lambda i: constrained(i)[0] / 2.0 + planner.transfer_s(i.C, i.b),
    },
    "p2.hazard.": {
        "mle": lambda i: i.events / i.exposure_h,
        "upper": lambda i: float(hazard.upper_bounds(np.array([i.events]), np.array([i.exposure_h]), i.level)[0]),
    },
    "p2.finalckpt.": {"time": lambda i: moved_s(i, i.b), "feasible": lambda i: moved_s(i, i.b) <= i.tau},
    "p2.survival.": {
        "S": lambda i: math.exp(-hazard.expected_reclaims(*table(i))),
        "expected_reclaims": lambda i: hazard.expected_reclaims(*table(i)),
    },
    "p2.score.": {"score_s": score_s, "T_mig_s": lambda i: moved_s(i, i.b)},
    "p2.locality.": {
        "T_local_s": lambda i: min(moved_s(i, rate) for rate in i.B_local),
        "T_cross_s": lambda i: min(moved_s(i, rate) for rate in i.B_core),
        "separated": lambda i: min(i.B_local) >= max(i.B_core),
        "local_no_slower": lambda i: max(i.B_local) >= max(i.B_core),
        "filtered": lambda i: len(i.B_local) >= max(1.0, i.k_min),
    },
    "p2.appC.static.": {
        "C_time_s": lambda i: planner.transfer_s(i.C, i.b),
        "lam_per_h": lambda i: job(i)[0] * HOUR_S,
        "delta_s": lambda i: young_s(*job(i)),
        "delta_min": lambda i: young_s(*job(i)) / 60.0,
    },
    "p2.appC.binding.": {
        "share_B_binding": lambda i: len(binding(i)) / len(i.B),
        "ratio": lambda i: adaptivity_gap(i.lam, [min(rate, i.W) for rate in i.B], 1.0).ratio,
        "ratio_B_binding": lambda i: adaptivity_gap(*map(list, zip(*binding(i), strict=True)), 1.0).ratio,
    },
    "p2.eq12.": {
        "r_min": lambda i: admission.minimum_rate(i.C, i.tau, i.T_r),
        "infeasible": lambda i: math.isinf(admission.minimum_rate(i.C, i.tau, i.T_r)),
    },
    "p2.bres.": {
        "B_res": lambda i: max(i.beta * i.B, i.B_min),
        "B_mig": lambda i: ResearchReserve(beta=i.beta, minimum_bytes_per_s=i.B_min).migration_share_bytes_per_s(i.B),
    },
    "p2.adm.": {
        "r_min": lambda i: [admission.minimum_rate(c, s, 0.0) for c, s in zip(i.C, i.slack_tau_minus_Tr, strict=True)],
        "edf_stop": lambda i: sorted(admitted(i, admission.edf_stop)),
        "edf_stop_count": lambda i: len(admitted(i, admission.edf_stop)),
        "fluid_moore_hodgson_count": lambda i: len(admitted(i, admission.fluid_edf)),
    },
    "p2.maxmin.": {"max_min_total": max_min},
    "p2.thm4.": {"residual": lambda i: residual_for_research(i.B_min, i.phi, i.u)},
}  # fmt: skip


# ---------------------------------------------------------------- comparison
def computed(vector: dict[str, Any], output: str) -> Any:
    """Return the output of a vector by its family's formula, or "error" where it is refused."""
    family = FAMILIES[max((prefix for prefix in FAMILIES if vector["id"].startswith(prefix)), key=len)]
    [(found, formula)] = [(m, f) for name, f in family.items() if (m := re.fullmatch(name, output))]
    above, _, below = re.sub(r"^0(\d)", r"0.\1", "".join(found.groups(""))).partition("_")
    argument = [float(above) / float(below or 1.0)] if above else []
    try:
        return formula(inputs_of(vector["inputs"]), *argument)
    except (DomainError, ValueError):
        return "error"


def agrees(expected: Any, found: Any, rel_tol: float) -> bool:
    """Return whether a recorded value and a computed one are the same. Levels beyond the recorded ones are 0."""
    if isinstance(expected, list):
        longest = max(len(expected), len(found))
        pairs = zip(*([*each, *[0.0] * (longest - len(each))] for each in (expected, found)), strict=True)
        return all(agrees(one, other, rel_tol) for one, other in pairs)
    if isinstance(expected, bool | str) or isinstance(found, bool | str) or math.isinf(expected) or math.isinf(found):
        return bool(expected == found)
    return abs(found - expected) <= max(rel_tol * abs(expected), TINY if expected else ROUNDING)


def wrong(vector: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return outputs that are not as recorded: (expected, found)."""
    found = {
        name: (number(value), computed(vector, name))
        for name, value in vector["outputs"].items()
        if name not in OF_OTHERS
    }
    return {name: pair for name, pair in found.items() if not agrees(*pair, vector.get("rel_tol", REL_TOL))}


def vectors(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["vectors"]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_vector_is_met(path: Path) -> None:
    assert {vector["id"]: faults for vector in vectors(path) if (faults := wrong(vector))} == {}


def test_the_vectors_beside_the_test_are_of_every_family_and_any_other_output_is_a_fault() -> None:
    for prefix in FAMILIES:
        [vector, *_] = [each for each in vectors(OURS) if f"{each['id']}.".startswith(prefix)]
        for name, value in vector["outputs"].items():
            first = number(value[0] if isinstance(value, list) else value)
            other = first * 1.01 if isinstance(first, float) and 0.0 < first < math.inf else not first
            changed = [other, *value[1:]] if isinstance(value, list) else other
            assert name in wrong(vector | {"outputs": {name: changed}}), (vector["id"], name)
