"""How fast the queue is simulated, and how right: ours, SimPy and Ciw on the same histories, and theory.

Speed is jobs per second of processor time on one core, the best of some rounds (others disturb, nothing speeds up), with
the wall clock beside it. "with its draws": the whole simulator, which draws jobs, spots and admissions. All other rows are
given the history ready drawn, the peers too, as lists where that is quicker for them. Every row decides on the same jobs,
and `differing_jobs` says how many fared otherwise than in ours.

Agreement is the distance from the exact mean, in standard errors by batch means, for every case of `cases`.
"""

from __future__ import annotations

import importlib
import importlib.util
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeVar

from controller.core.queueing.replay import Rule, prepare, replay
from experiments.benchmarks.results import write_result
from experiments.results.pictures import CARD, GOOD, INK, MUTED, PEER, SERIES, canvas
from experiments.results.provenance import processor
from experiments.theory.paper_b import targets
from experiments.worlds.queue.ages import under_ages
from experiments.worlds.queue.cases import (
    AGE_RULE,
    SPOTS,
    K,
    QueueCase,
    cases,
)
from experiments.worlds.queue.estimate import Fates, Mean
from experiments.worlds.queue.history import DrawnHistory, Piece
from experiments.worlds.queue.model import Model
from experiments.worlds.queue.simulator import simulate

ROUNDS: Final = 3
BATCHES: Final = 40
TARGET_JOBS_PER_S: Final = 10e6
TARGET_ERRORS: Final = 4.0
SEED: Final = 1
OURS: Final = "ours, with its draws"
KERNEL: Final = "ours, history given"
PLAIN: Final = "ours, plain Python"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Jobs a run: so many that each takes a second or so."""

    ours: int = 20_000_000
    kernel: int = 2_000_000
    plain: int = 200_000
    peers: int = 100_000
    case: int = 2_000_000


QUICK: Final = Sizes(ours=4_000_000, kernel=500_000, plain=50_000, peers=20_000, case=500_000)


def measure_queue(out: Path, *, quick: bool = False, seed: int = SEED) -> dict[str, Any]:
    """Measures speed and agreement; writes queue.json and queue.svg to `out` and returns what the JSON holds.

    About two minutes on one core, `quick` a fifth of that. A peer that is not installed is left out and named.
    """
    sizes = QUICK if quick else Sizes()
    prepare()
    missing = [name for name, module in (("numba", "numba"), *PEERS.items()) if not _is_there(module)]
    speed: dict[str, dict[str, dict[str, Any]]] = {}
    for case in _raced():  # one row a system; the peers' first jobs are those of the rows above them
        timing, estimate = _timed(partial(simulate, case.model, sizes.ours, seed), sizes.ours)
        rows = {OURS: timing | _means(case, estimate.cost, estimate.delay_h)}
        rows[KERNEL] = _row(case, _replayed, sizes.kernel, seed)
        rows[PLAIN] = _row(case, partial(_replayed, compiled=False), sizes.plain, seed)
        for name, module in PEERS.items():
            if _is_there(module):
                peer = importlib.import_module(f"experiments.benchmarks.{module}_peer")
                rows[name] = _row(case, peer.simulate, sizes.peers, seed)
        speed[case.name] = rows
    agreement = []
    for place, case in enumerate(cases()):
        estimate = simulate(case.model, sizes.case, seed + place)
        exact = {"exact_cost": case.cost, "exact_delay_h": case.delay_h}
        means = _means(case, estimate.cost, estimate.delay_h)
        agreement.append({"family": case.family, "case": case.name, **exact, **means})
    paper = [speed[case.name][OURS]["jobs_per_cpu_s"] for case in _raced() if case.family == "paper's policy"]
    worst = max(agreement, key=lambda row: float(row["errors"]))
    result = {
        "machine": {"processor": processor(), "python": platform.python_version()},
        "jobs": {name: getattr(sizes, name) for name in sizes.__slots__},
        "rounds": ROUNDS,
        "seed": seed,
        "not_installed": missing,
        "cannot_say": {
            "Ciw": "offers that stand; ages and ends of waits only as services that know the spots"
        },
        "speed": speed,
        "agreement": agreement,
        "targets": {"jobs_per_cpu_s": TARGET_JOBS_PER_S, "errors": TARGET_ERRORS},
        "slowest_jobs_per_cpu_s": min(paper),
        "worst": worst,
        "met": {"speed": min(paper) >= TARGET_JOBS_PER_S, "agreement": worst["errors"] <= TARGET_ERRORS},
    }
    write_result(out / "queue.json", result)
    draw(result, out / "queue.svg")
    return result


def _raced() -> Iterator[QueueCase]:
    """What all are timed on: the paper's policy in two of its figures, and the rule by the age of the gap."""
    for name in ("fig5", "fig2-poisson", "fig3-gamma"):
        target = targets.BY_NAME[name]
        model = Model(target.jobs, target.spots, Rule(target.r_star), K)
        yield QueueCase("paper's policy", name, model, target.cost_star, target.delta_h)
    exact = under_ages(12.0, SPOTS["bath-tub"], AGE_RULE, K)
    model = Model(targets.POISSON_12, SPOTS["bath-tub"], AGE_RULE, K)
    yield QueueCase("age of the gap", "age-rule", model, exact.cost, exact.delay_h)


T = TypeVar("T")
System = Callable[[Model, Piece], Fates]
PEERS: Final = {"SimPy": "simpy", "Ciw": "ciw"}


def _row(case: QueueCase, system: System, jobs: int, seed: int) -> dict[str, Any]:
    history = DrawnHistory(case.model.jobs, case.model.spots, seed).whole(jobs)
    timing, fates = _timed(lambda: system(case.model, history), jobs)
    means = _means(case, *fates.means(case.model.k, BATCHES))
    return timing | means | {"differing_jobs": fates.differences(_replayed(case.model, history))}


def _replayed(model: Model, history: Piece, *, compiled: bool = True) -> Fates:
    """Ours, in machine code or as Python."""
    outcome = replay(model.rule, *history, model.offer_ttl_h, record=True, compiled=compiled)
    assert outcome.decisions is not None
    assert outcome.delays_s is not None
    return Fates(outcome.decisions, outcome.delays_s)


def _timed(call: Callable[[], T], jobs: int) -> tuple[dict[str, Any], T]:
    """The quickest round, and the answer, which is the same in all of them."""
    cpu_s, wall_s = [], []
    for _ in range(ROUNDS):
        cpu_0_s, wall_0_s = time.process_time(), time.perf_counter()
        answer = call()
        cpu_s.append(time.process_time() - cpu_0_s)
        wall_s.append(time.perf_counter() - wall_0_s)
    return {"jobs": jobs, "jobs_per_cpu_s": jobs / min(cpu_s), "jobs_per_s": jobs / min(wall_s)}, answer


def _means(case: QueueCase, cost: Mean, delay_h: Mean) -> dict[str, Any]:
    return {
        "cost": [cost.value, cost.error],
        "delay_h": [delay_h.value, delay_h.error],
        "errors": max(cost.errors_from(case.cost), delay_h.errors_from(case.delay_h)),
    }


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


LABEL = {"facecolor": CARD, "edgecolor": "none", "pad": 0.4, "alpha": 0.9}


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Two panels: speed on a log scale, agreement in standard errors."""
    title = f"Paper B's queue, simulated: {result['machine']['processor']}, one core"
    with canvas(path, 1, 2, (14, 6), title, width_ratios=[1, 1.1]) as (_, [[left, right]]):
        systems = list(next(iter(result["speed"].values())))
        height = 0.8 / len(result["speed"])
        for place, (case, rows) in enumerate(result["speed"].items()):
            for line, name in enumerate(systems):
                rate = rows[name]["jobs_per_cpu_s"]
                y = line + (place - (len(result["speed"]) - 1) / 2) * height
                left.barh(
                    y,
                    rate,
                    height * 0.9,
                    color=SERIES[0] if name.startswith("ours") else PEER,
                    alpha=1 - 0.18 * place,
                )
                left.annotate(
                    f" {case}  {_rate(rate)}",
                    (rate, y),
                    va="center",
                    fontsize=7.5,
                    color=INK,
                    zorder=3,
                    bbox=LABEL,
                )
        goal = result["targets"]["jobs_per_cpu_s"]
        left.axvline(goal, color=GOOD, linewidth=1)
        left.annotate(f"goal {_rate(goal)} ", (goal, -0.62), ha="right", fontsize=8, color=GOOD)
        left.set_xscale("log")
        left.set_xlim(1e4, 2e9)
        left.set_ylim(len(systems) - 0.4, -0.75)
        left.set_yticks(range(len(systems)), [name.replace(", ", ",\n") for name in systems], fontsize=9)
        left.set_xlabel("jobs per second of processor time (log)")
        left.set_title("Speed; histories are given to all rows but the first")
        families = [
            (name, list(rows)) for name, rows in groupby(result["agreement"], lambda row: row["family"])
        ]
        for line, (_, rows) in enumerate(families):
            for exact, mean, color, above in (
                ("exact_cost", "cost", SERIES[0], -0.13),
                ("exact_delay_h", "delay_h", PEER, 0.13),
            ):
                means = ((*row[mean], row[exact]) for row in rows)
                distances = [(value - target) / error if error else 0.0 for value, error, target in means]
                label = {"cost": "mean cost", "delay_h": "mean delay"}[mean] if line == 0 else None
                right.scatter(
                    distances, [line + above] * len(rows), s=22, color=color, alpha=0.7, label=label
                )
        limit = result["targets"]["errors"]
        right.axvspan(-limit, limit, color=GOOD, alpha=0.1, zorder=0)
        right.axvline(0.0, color=MUTED, linewidth=0.8)
        right.set_xlim(-limit - 1, limit + 1)
        right.set_yticks(
            range(len(families)), [f"{name}\n{len(rows)} cases" for name, rows in families], fontsize=9
        )
        right.invert_yaxis()
        right.set_xlabel("simulated less exact, in standard errors (green: within four)")
        right.set_title(f"Agreement with theory, {result['jobs']['case'] / 1e6:g} M jobs a case")
        right.legend(loc="lower right")


def _rate(jobs_per_s: float) -> str:
    return f"{jobs_per_s / 1e6:.3g} M/s" if jobs_per_s >= 1e6 else f"{jobs_per_s / 1e3:.3g} k/s"
