"""The same queue as SimPy processes: jobs come, spots come, gaps come of age, and each job that waits is a process.

SimPy can express everything of the model. It runs generators, one event at a time, in Python: that is its price, not a
fault of this file. The history is given to it ready drawn, which is quicker than drawing in it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from controller.core.queueing.replay import LEFT, REFUSED, SPOT, WAITING
from controller.numerics.arrays import Floats
from experiments.worlds.queue.history import Piece
from experiments.worlds.queue.simulator import Model

Process = Generator[simpy.Event, Any, None]
Fates = tuple[NDArray[np.int8], Floats]  # the decision on each job, and its wait; NaN while it waits


def simulate(model: Model, history: Piece) -> Fates:
    """Return the outcome of each job of the history. SimPy orders simultaneous events only by their scheduling."""
    queue = _Queue(model, history)
    queue.env.process(queue.jobs())
    queue.env.process(queue.spots())
    queue.env.run(until=math.nextafter(history.end_h, math.inf))
    return np.array(queue.decisions, np.int8), np.array(queue.delays_h)


class _Queue:
    def __init__(self, model: Model, history: Piece) -> None:
        self.model, self.env = model, simpy.Environment()
        self.times_h, self.spots_h, self.draws = (part.tolist() for part in history)
        self.decisions = [WAITING] * len(self.times_h)
        self.delays_h = [math.nan] * len(self.times_h)
        self._waiting: deque[simpy.Event] = deque()
        self._standing_until_h: deque[float] = deque()
        self._gap_began_h = 0.0

    def jobs(self) -> Process:
        for number, at_h in enumerate(self.times_h):
            yield self.env.timeout(at_h - self.env.now)
            while self._standing_until_h and self._standing_until_h[0] <= self.env.now:
                self._standing_until_h.popleft()
            rule, age_h = self.model.rule, self.env.now - self._gap_began_h
            is_between = rule.admit_until_age_s <= age_h < rule.admit_from_age_s
            level = rule.level - (rule.fewer if is_between else 0.0)
            if self._standing_until_h:
                self._standing_until_h.popleft()
                self._done(number, SPOT, 0.0)
            elif self.draws[number] < level - len(self._waiting):
                self.env.process(self._wait(number))
            else:
                self._done(number, REFUSED, 0.0)

    def spots(self) -> Process:
        if self.model.rule.leave_at_age_s < math.inf:
            self.env.process(self._come_of_age(0.0))
        for at_h in self.spots_h:
            yield self.env.timeout(at_h - self.env.now)
            self._gap_began_h = self.env.now
            if self._waiting:
                self._waiting.popleft().succeed(SPOT)
            elif self.model.offer_ttl_h > 0.0:
                self._standing_until_h.append(self.env.now + self.model.offer_ttl_h)
            if self.model.rule.leave_at_age_s < math.inf:
                self.env.process(self._come_of_age(self.env.now))

    def _come_of_age(self, began_h: float) -> Process:
        yield self.env.timeout(self.model.rule.leave_at_age_s)
        if self._gap_began_h == began_h:
            while self._waiting:
                self._waiting.popleft().succeed(LEFT)

    def _wait(self, number: int) -> Process:
        since_h, turn = self.env.now, self.env.event()
        self._waiting.append(turn)
        if self.model.rule.longest_wait_s < math.inf:
            yield turn | self.env.timeout(self.model.rule.longest_wait_s)
        else:
            yield turn
        if not turn.triggered:
            self._waiting.remove(turn)
        decision = int(turn.value or LEFT) if turn.triggered else LEFT
        self._done(number, decision, self.env.now - since_h)

    def _done(self, number: int, decision: int, delay_h: float) -> None:
        self.decisions[number], self.delays_h[number] = decision, delay_h
