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
import json
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from controller.core.queueing.replay import Rule, prepare, replay
from experiments.benchmarks import queue_picture
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
    speed = {case.name: _speed(case, sizes, seed) for case in _raced()}
    agreement = [_agreement(case, sizes.case, seed + place) for place, case in enumerate(cases())]
    paper = [speed[case.name][OURS]["jobs_per_cpu_s"] for case in _raced() if case.family == "paper's policy"]
    worst = max(agreement, key=lambda row: float(row["errors"]))
    result = {
        "machine": {"processor": _processor(), "python": platform.python_version()},
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
    out.mkdir(parents=True, exist_ok=True)
    (out / "queue.json").write_text(json.dumps(result, indent=2) + "\n")
    queue_picture.draw(result, out / "queue.svg")
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


def _speed(case: QueueCase, sizes: Sizes, seed: int) -> dict[str, dict[str, Any]]:
    """One row a system. The peers' first jobs are those of the rows above them."""
    timing, estimate = _timed(lambda: simulate(case.model, sizes.ours, seed), sizes.ours)
    rows = {OURS: timing | _means(case, estimate.cost, estimate.delay_h)}
    rows[KERNEL] = _row(case, _ours, sizes.kernel, seed)
    rows[PLAIN] = _row(case, _plain, sizes.plain, seed)
    for name, module in PEERS.items():
        if _is_there(module):
            peer = importlib.import_module(f"experiments.benchmarks.{module}_peer")
            rows[name] = _row(case, peer.simulate, sizes.peers, seed)
    return rows


def _row(case: QueueCase, system: System, jobs: int, seed: int) -> dict[str, Any]:
    history = DrawnHistory(case.model.jobs, case.model.spots, seed).whole(jobs)
    timing, fates = _timed(lambda: system(case.model, history), jobs)
    means = _means(case, *fates.means(case.model.k, BATCHES))
    return timing | means | {"differing_jobs": fates.differences(_ours(case.model, history))}


def _ours(model: Model, history: Piece) -> Fates:
    return _fates(model, history, compiled=True)


def _plain(model: Model, history: Piece) -> Fates:
    return _fates(model, history, compiled=False)


def _fates(model: Model, history: Piece, *, compiled: bool) -> Fates:
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


def _agreement(case: QueueCase, jobs: int, seed: int) -> dict[str, Any]:
    estimate = simulate(case.model, jobs, seed)
    exact = {"family": case.family, "case": case.name, "exact_cost": case.cost, "exact_delay_h": case.delay_h}
    return exact | _means(case, estimate.cost, estimate.delay_h)


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
