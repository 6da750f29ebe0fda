"""The same queue in Ciw, as near as it can say it.

Ciw has nodes at which servers serve customers. Here one node with one server holds all that wait, and a "service" lasts
until the next spot, however long the gap has been open when it begins: a distribution that knows the spots says so.
Admission is a baulking function; a wait that ends without a spot is a service that ends early, because Ciw's own
reneging is for customers whose service has not begun, and here the oldest is always in service. What it cannot say:
an offer that stands, since a service cannot begin before its customer comes.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from controller.core.queueing.replay import (
    LEFT,
    REFUSED,
    SPOT,
    WAITING,
    Rule,
)
from experiments.worlds.queue.estimate import Fates
from experiments.worlds.queue.history import Piece
from experiments.worlds.queue.model import Model

ciw: Any = importlib.import_module("ciw")  # it has no types


def simulate(model: Model, history: Piece) -> Fates:
    """What becomes of each job of the history. ValueError: offers that stand."""
    if model.offer_ttl_h > 0.0:
        raise ValueError(
            f"offer_ttl_h {model.offer_ttl_h}: only 0, Ciw has no servers that wait for customers"
        )
    draws = history.draws.tolist()

    def baulks(waiting: int, Q: Any, next_ind: Any, next_node: Any) -> float:  # noqa: N803 (Ciw's own names)
        return (
            0.0 if _gaps_of(Q).admits(waiting, draws[next_ind.id_number - 1], float(Q.current_time)) else 1.0
        )

    between_h = np.diff(history.job_times_h, prepend=0.0).tolist()
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential([*between_h, math.inf])],
        service_distributions=[_gaps(model.rule, history.spot_times_h.tolist())],
        number_of_servers=[1],
        baulking_functions=[baulks],
    )
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(math.nextafter(history.end_h + 1e-6, math.inf))
    left = _gaps_of(simulation).left
    decisions, delays_h = np.full(len(draws), WAITING, np.int8), np.full(len(draws), math.nan)
    for record in simulation.get_all_records(only=["service", "baulk"]):
        number = record.id_number - 1
        if record.record_type == "baulk":
            decisions[number], delays_h[number] = REFUSED, 0.0
        else:
            decisions[number] = LEFT if record.id_number in left else SPOT
            delays_h[number] = record.service_end_date - record.arrival_date
    return Fates(decisions, delays_h)


def _gaps_of(simulation: Any) -> Any:
    """The simulation's own copy of the service distribution."""
    return simulation.service_times[1]["Customer"]


def _gaps(rule: Rule, spots_h: list[float]) -> Any:
    """A service distribution: how long the oldest job goes on waiting. Ciw takes only subclasses of its own."""

    class Gaps(ciw.dists.Distribution):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left: set[int] = set()  # whose service ends without a spot
            self._coming, self._is_coming_used = 0, False

        def sample(self, t: float, ind: Any) -> float:
            began_h = self._pass_spots(t)
            spot_h = spots_h[self._coming] if self._coming < len(spots_h) else math.inf
            until_h = ind.arrival_date + rule.longest_wait_s
            if ind.arrival_date < began_h + rule.leave_at_age_s:
                until_h = min(until_h, began_h + rule.leave_at_age_s)
            self._is_coming_used = spot_h <= until_h
            if not self._is_coming_used:
                self.left.add(ind.id_number)
            return float(max(0.0, min(spot_h, until_h) - t))

        def admits(self, waiting: int, draw: float, now_h: float) -> bool:
            age_h = now_h - (self._gap_began_h() if waiting else self._pass_spots(now_h))
            is_between = rule.admit_until_age_s <= age_h < rule.admit_from_age_s
            return draw < rule.level - (rule.fewer if is_between else 0.0) - waiting

        def _pass_spots(self, now_h: float) -> float:
            """No job is in service: on to the first spot after now. One that was used is over, roundings of `now` apart."""
            self._coming += self._is_coming_used
            self._is_coming_used = False
            while self._coming < len(spots_h) and spots_h[self._coming] <= now_h:
                self._coming += 1
            return self._gap_began_h()

        def _gap_began_h(self) -> float:
            return spots_h[self._coming - 1] if self._coming else 0.0

    return Gaps()
