"""The simulator: draw a piece of history, replay it, go on where it ended; one row a batch."""

from __future__ import annotations

from typing import Final

import numpy as np

from controller.core.queueing.replay import QueueState, replay
from controller.numerics.arrays import Floats
from experiments.worlds.queue.estimate import Estimate, estimate
from experiments.worlds.queue.history import DrawnHistory
from experiments.worlds.queue.model import Model

# So many that their spread is known to 7 %; a batch is far longer than the queue's memory.
BATCHES: Final = 100
WARM_UP: Final = 2_000  # jobs: from the empty queue at a renewal to where nothing remembers it


def simulate(
    model: Model,
    jobs: int,
    seed: int,
    *,
    batches: int = BATCHES,
    warm_up: int = WARM_UP,
) -> Estimate:
    """Return E[C], E[T] and pi_0 of the model, from `jobs` jobs after a warm-up that does not count.

    Memory does not grow with `jobs`. The same seed gives the same estimate. ValueError: fewer jobs
    than batches, fewer than two batches.
    """
    if not 2 <= batches <= jobs:
        raise ValueError(f"{batches} batches of {jobs} jobs: at least two batches, and at least a job each")
    history = DrawnHistory(model.jobs, model.spots, seed)
    state = _run(model, history, QueueState(), warm_up, np.zeros(5))
    rows = np.zeros((batches, 5))
    for index, row in enumerate(rows):
        count = (index + 1) * jobs // batches - index * jobs // batches
        state = _run(model, history, state, count, row)
    return estimate(model.k, rows)


def _run(model: Model, history: DrawnHistory, state: QueueState, jobs: int, row: Floats) -> QueueState:
    """Run one batch: add its sums to the row, and return the state at its end."""
    for piece in history.pieces(jobs):
        seen = replay(model.rule, *piece, model.offer_ttl_h, state)
        row += (seen.spot, seen.on_demand, seen.total_delay_s, seen.idle_spots, seen.spots)
        state = seen.end.shifted(-piece.end_h)
    return state
