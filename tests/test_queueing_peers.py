"""SimPy's model of the queue decides as the kernel does, job by job; the benchmark has every case."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from controller.core.queueing.replay import Rule, replay
from controller.numerics.arrays import Floats
from experiments.benchmarks import queue
from experiments.benchmarks.frame import Run
from experiments.theory.laws import Exponential, Gamma
from experiments.worlds.queue.cases import AGE_RULE, SPOTS
from experiments.worlds.queue.history import DrawnHistory, Piece
from experiments.worlds.queue.simulator import Model
from tests.shown import shown

pytestmark = pytest.mark.extra
Fates = tuple[NDArray[np.int8], Floats]
POISSON, BATH_TUB = Exponential(12.0), SPOTS["bath-tub"]
AT_ONCE = {
    "M/M": Model(POISSON, POISSON, Rule(1.25)),
    "bath-tub": Model(Gamma(12.0, 1.0), BATH_TUB, Rule(2.4661)),
    "bursts": Model(POISSON, SPOTS["gamma-quarter"], Rule(3.5)),
    "ages": Model(POISSON, BATH_TUB, AGE_RULE),
    "ages and waits": Model(POISSON, BATH_TUB, Rule(3.0, 5.0, 10.0, 8.0, 9.0)),
    "longest wait": Model(POISSON, POISSON, Rule(2.4, longest_wait_s=9.0)),
}
STANDING = {
    "offers that lapse": Model(POISSON, POISSON, Rule(1.4), offer_ttl_h=6.0),
    "offers and ages": Model(POISSON, BATH_TUB, Rule(2.0, 3.0, 9.0, 5.0), offer_ttl_h=2.0),
}


def kernel(model: Model, history: Piece) -> Fates:
    outcome = replay(model.rule, *history, model.offer_ttl_h, record=True)
    assert outcome.decisions is not None
    assert outcome.delays_s is not None
    return outcome.decisions, outcome.delays_s


def differences(simulate: Callable[[Model, Piece], Fates], model: Model, jobs: int = 4_000) -> int:
    history = DrawnHistory(model.jobs, model.spots, 5).whole(jobs)
    (mine, mine_h), (theirs, theirs_h) = simulate(model, history), kernel(model, history)
    same = np.isclose(mine_h, theirs_h, rtol=1e-9, atol=1e-6, equal_nan=True)
    return int(np.count_nonzero((mine != theirs) | ~same))


@pytest.mark.parametrize("name", [*AT_ONCE, *STANDING])
def test_simpy_decides_the_same_job_by_job(name: str) -> None:
    simpy_peer = pytest.importorskip("tests.simpy_peer", reason="simpy is not installed")
    assert differences(simpy_peer.simulate, (AT_ONCE | STANDING)[name]) == 0


def test_a_job_that_fares_otherwise_is_counted() -> None:
    model = AT_ONCE["M/M"]
    assert differences(lambda _, history: kernel(Model(POISSON, POISSON, Rule(1.24)), history), model) > 0


def test_the_benchmark_times_each_case_and_judges_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(queue, "QUICK_JOBS", (2_000, 2_000))
    monkeypatch.setattr(queue, "ROUNDS", 1)
    result = queue.measure(Run(tmp_path, quick=True))
    assert all(row["jobs_per_cpu_s"] > 0.0 for row in result["speed"].values())
    assert len(list(queue.goals(result))) == 2
    assert "fig2-poisson" in shown(queue.tables(result))
