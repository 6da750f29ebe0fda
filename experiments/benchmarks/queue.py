"""Speed and exactness of the simulated queue: this simulator and SimPy on the same histories, and theory.

Speed is jobs per second of processor time on one core, the best of some rounds (others disturb, nothing speeds up), with
the wall clock beside it. "with its draws": the whole simulator, which draws jobs, spots and admissions. All other rows are
given the history ready drawn, SimPy too, as lists. Every row decides on the same jobs,
and `differing_jobs` counts those with another outcome than in this simulator.

Agreement is the distance from the exact mean, in standard errors by batch means, for every case of `cases`.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from rich.table import Table

from controller.core.queueing.replay import Rule, prepare, replay
from experiments.benchmarks.frame import Goal, Result, Run, at_least, at_most, table_of
from experiments.theory.paper_b import targets
from experiments.worlds.queue.ages import under_ages
from experiments.worlds.queue.cases import AGE_RULE, SPOTS, K, QueueCase, cases
from experiments.worlds.queue.estimate import Fates, Mean
from experiments.worlds.queue.history import DrawnHistory, Piece
from experiments.worlds.queue.model import Model
from experiments.worlds.queue.simulator import simulate

ROUNDS: Final = 3
BATCHES: Final = 40
TARGET_JOBS_PER_S: Final = 10e6
TARGET_ERRORS: Final = 4.0
SEED: Final = 1
WITH_DRAWS: Final = "with its draws"
KERNEL: Final = "history given"
PLAIN: Final = "plain Python"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Jobs a run: enough for a second or so."""

    drawn: int = 20_000_000
    kernel: int = 2_000_000
    plain: int = 200_000
    peer: int = 100_000
    case: int = 2_000_000


QUICK: Final = Sizes(drawn=4_000_000, kernel=500_000, plain=50_000, peer=20_000, case=500_000)


def measure(run: Run) -> dict[str, Any]:
    """Measure speed and agreement: two minutes on one core, `quick` a fifth. SimPy is left out where it is missing."""
    sizes, seed = QUICK if run.quick else Sizes(), SEED
    prepare()
    has_simpy = importlib.util.find_spec("simpy") is not None
    speed: dict[str, dict[str, dict[str, Any]]] = {}
    for case in _raced():  # one row a system; SimPy's first jobs are those of the rows above it
        timing, estimate = _timed(partial(simulate, case.model, sizes.drawn, seed), sizes.drawn)
        rows = {WITH_DRAWS: timing | _means(case, estimate.cost, estimate.delay_h)}
        rows[KERNEL] = _row(case, _replayed, sizes.kernel, seed)
        rows[PLAIN] = _row(case, partial(_replayed, compiled=False), sizes.plain, seed)
        if has_simpy:
            peer = importlib.import_module("experiments.benchmarks.simpy_peer")
            rows[SIMPY] = _row(case, peer.simulate, sizes.peer, seed)
        speed[case.name] = rows
    agreement = []
    for place, case in enumerate(cases()):
        estimate = simulate(case.model, sizes.case, seed + place)
        exact = {"exact_cost": case.cost, "exact_delay_h": case.delay_h}
        means = _means(case, estimate.cost, estimate.delay_h)
        agreement.append({"family": case.family, "case": case.name, **exact, **means})
    paper = [
        speed[case.name][WITH_DRAWS]["jobs_per_cpu_s"] for case in _raced() if case.family == "paper's policy"
    ]
    worst = max(agreement, key=lambda row: float(row["errors"]))
    return {
        "jobs": {name: getattr(sizes, name) for name in sizes.__slots__},
        "speed": speed,
        "agreement": agreement,
        "slowest_jobs_per_cpu_s": min(paper),
        "worst": worst,
    }


def goals(result: Result) -> Iterator[Goal]:
    """Yield the speed of the paper's policy, and the largest distance from theory."""
    slowest, worst = result["slowest_jobs_per_cpu_s"], result["worst"]
    millions = lambda rate: f"{rate / 1e6:.3g} M jobs/s"  # noqa: E731
    yield at_least("paper's policy, draws included", slowest, TARGET_JOBS_PER_S, millions)
    what = (
        f"distance from theory, {len(result['agreement'])} cases (most: {worst['family']}, {worst['case']})"
    )
    yield at_most(what, worst["errors"], TARGET_ERRORS, "{:.2f} SE".format)


def tables(result: Result) -> Iterator[Table | str]:
    """Yield jobs a second of each simulator, its differing jobs, and the distance of its means from theory."""
    rows: list[tuple[str, ...]] = []
    for case, systems in result["speed"].items():
        rows += [(), (case,)]
        for name, row in systems.items():
            rates = (f"{row[key]:,.0f}" for key in ("jobs_per_cpu_s", "jobs_per_s"))
            otherwise = str(row.get("differing_jobs", ""))
            rows.append((f"  {name}", f"{row['jobs']:,}", *rates, otherwise, f"{row['errors']:.2f} SE"))
    heads = ("simulator", "jobs", "jobs/s, processor", "jobs/s, wall", "differing jobs", "from theory")
    yield table_of(f"Paper B's queue, one core, best of {ROUNDS}", heads, rows)
    if not all(SIMPY in systems for systems in result["speed"].values()):
        yield "left out, not installed: SimPy"


def _raced() -> Iterator[QueueCase]:
    """Yield the timed cases: the paper's policy in two of its figures, and the rule by the age of the gap."""
    for name in ("fig5", "fig2-poisson", "fig3-gamma"):
        target = targets.BY_NAME[name]
        model = Model(target.jobs, target.spots, Rule(target.r_star), K)
        yield QueueCase("paper's policy", name, model, target.cost_star, target.delta_h)
    exact = under_ages(12.0, SPOTS["bath-tub"], AGE_RULE, K)
    model = Model(targets.POISSON_12, SPOTS["bath-tub"], AGE_RULE, K)
    yield QueueCase("age of the gap", "age-rule", model, exact.cost, exact.delay_h)


T = TypeVar("T")
System = Callable[[Model, Piece], Fates]
SIMPY: Final = "SimPy"


def _row(case: QueueCase, system: System, jobs: int, seed: int) -> dict[str, Any]:
    history = DrawnHistory(case.model.jobs, case.model.spots, seed).whole(jobs)
    timing, fates = _timed(lambda: system(case.model, history), jobs)
    means = _means(case, *fates.means(case.model.k, BATCHES))
    return timing | means | {"differing_jobs": fates.differences(_replayed(case.model, history))}


def _replayed(model: Model, history: Piece, *, compiled: bool = True) -> Fates:
    """Replay the history with this simulator, in machine code or as Python."""
    outcome = replay(model.rule, *history, model.offer_ttl_h, record=True, compiled=compiled)
    assert outcome.decisions is not None
    assert outcome.delays_s is not None
    return Fates(outcome.decisions, outcome.delays_s)


def _timed(call: Callable[[], T], jobs: int) -> tuple[dict[str, Any], T]:
    """Return the quickest round, and the answer, which is the same in all of them."""
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
