"""P2's forms on the same random jobs: how long a job is under way until it is done, over all the moves that it makes.

A job has been told to leave its host and has so much left to run. A destination is chosen; there it runs until it is done or
taken back again, when it has to move on; and so on. Hazards differ from host to host; believed is what the coordinator would
make of two weeks of history: the upper bound of its estimate, not the truth. What a choice is worth
shows only in the sum of C/bw + T_r over all its moves. Hosts that are free, and what others leave of each link, are drawn
anew at each move, the same for all rules. Notices are long enough; hazards are the same all day.
"""

from __future__ import annotations

from functools import partial
from random import Random

import numpy as np

from controller.core.network.links import Network
from controller.core.placement import select
from controller.core.placement.hazard import HazardWindow
from controller.core.placement.select import (
    Candidates,
    DestinationChoice,
    PlacementRequest,
    Selector,
)
from experiments.benchmarks.reclaim_waves import payload_bytes
from topologies.paths import Routes
from topologies.presets import campus54
from topologies.spec import Role

RULES: dict[str, Selector] = {
    "expected reclaims": partial(select.select, second_form=True),
    "eq. 11": select.select,
    "eq. 11, same building first": partial(select.select, k_min=1),
    "fastest": partial(select.select, alpha=0.0),
    "at random": select.select_random,
}
HAZARD_PER_S, SHAPE = 0.35 / 3600.0, 1.0 / 0.62**2  # of reclaims of any kind; CV .62 (F4)
MEAN_RUN_S, RESTART_S = 10 * 3600.0, 10.0
FREE, LEAST_LEFT = 0.4, 0.2  # share of hosts that are free; least part of a link that others leave
MOST_MOVES = 200
HISTORY_S, AWAY_S = 14 * 86_400.0, 2 * 3600.0
RESAMPLES, BOUNDS = 2_000, (0.05, 0.95)


class PlanningSetup:
    """Paper A's campus: the links of the way between any two hosts, and every host's hazard."""

    def __init__(self, rng: Random) -> None:
        campus = campus54()
        network, routes = Network(campus.capacity_bytes_per_s), Routes(campus)
        volunteers = [host for host in campus.hosts if host.role is Role.VOLUNTEER]
        self.hosts = [host.name for host in volunteers]
        self.buildings = np.array([host.building for host in volunteers], dtype=object)
        self.rate = np.append(network.column(campus.capacity_bytes_per_s), np.inf)
        ways = [[network.path(routes.route(a, b)) if a != b else () for b in self.hosts] for a in self.hosts]
        width = max(len(way) for row in ways for way in row)
        nowhere = len(network)
        self.ways = np.array([[(*w, *(nowhere,) * (width - len(w))) for w in row] for row in ways])
        self.hazard_per_s = HAZARD_PER_S * np.array(
            [rng.gammavariate(SHAPE, 1.0 / SHAPE) for _ in self.hosts]
        )
        # upper bounds after two weeks in which a host is away for two hours after each reclaim
        seen = HazardWindow(HISTORY_S)
        for host, hazard in zip(self.hosts, self.hazard_per_s.tolist(), strict=True):
            at_s = 0.0
            while at_s < HISTORY_S:
                seen.lend(host, at_s)
                at_s += rng.expovariate(hazard)
                if at_s < HISTORY_S:
                    seen.emergency(host, at_s)
                at_s += AWAY_S
        self.believed_per_s = seen.upper_by_hour(self.hosts, HISTORY_S)[0]

    def candidates(self, source: int, size: float, left_s: float, rng: Random) -> Candidates:
        """The hosts that are free now, as P2 sees them."""
        free = [n for n in range(len(self.hosts)) if n != source and rng.random() < FREE]
        others = np.array([rng.uniform(LEAST_LEFT, 1.0) for _ in self.rate])
        rows = np.array(free or [(source + 1) % len(self.hosts)])
        between = (self.rate * others)[self.ways[rows][:, [*rows, source]]].min(axis=2)
        reclaims = self.believed_per_s[rows] * left_s
        one = np.ones(len(rows))
        slowness = np.where(np.isfinite(between[:, :-1]), 1.0 / between[:, :-1], 0.0)
        others_count = len(rows) - 1
        onward_s = slowness.sum(axis=1) / max(1, others_count) * size + RESTART_S
        away_s = onward_s if others_count else np.full(1, np.nan)
        return Candidates(
            np.array(self.hosts, dtype=object)[rows],
            self.buildings[rows],
            one,
            one,
            one,
            one - 1.0,
            between[:, -1],
            np.exp(-reclaims),
            reclaims,
            away_s,
            one - 1.0,
            one - 1.0,
        )


def measure_moves(jobs: int) -> dict[str, dict[str, float]]:
    """{rule: mean seconds under way a job, mean moves, and by how much more than the first, paired, with 90 %}."""
    ground = PlanningSetup(Random("hazards"))
    found = {name: np.array([_life(ground, rule, n) for n in range(jobs)]) for name, rule in RULES.items()}
    first = found[next(iter(RULES))][:, 0]
    chosen = np.random.default_rng(1).integers(0, jobs, (RESAMPLES, jobs))
    measured = {}
    for name, of in found.items():
        more = of[:, 0][chosen].mean(axis=1) / first[chosen].mean(axis=1) - 1.0
        low, high = np.quantile(more, BOUNDS).tolist()
        measured[name] = {
            "under_way_s": float(of[:, 0].mean()),
            "moves": float(of[:, 1].mean()),
            "more": float(of[:, 0].mean() / first.mean() - 1.0),
            "low": low,
            "high": high,
        }
    return measured


def _life(ground: PlanningSetup, rule: Selector, number: int) -> tuple[float, int]:
    """(seconds under way, moves) of one job until it is done."""
    rng = Random(f"job {number}")
    size, left_s, host = (
        payload_bytes(rng),
        rng.expovariate(1.0 / MEAN_RUN_S),
        rng.randrange(len(ground.hosts)),
    )
    under_way_s = 0.0
    for move in range(MOST_MOVES):
        event = Random(f"job {number}, move {move}")
        found = ground.candidates(host, size, left_s, event)
        wanted = PlacementRequest(
            ground.hosts[host], size, 0.0, 0.0, left_s, None, RESTART_S, str(ground.buildings[host])
        )
        choice = rule(wanted, found, draw=event.random())
        assert isinstance(choice, DestinationChoice)  # a host is always free, and nothing else is asked for
        under_way_s += choice.migration_s
        host = ground.hosts.index(choice.host)
        stays_s = event.expovariate(1.0) / float(ground.hazard_per_s[host])
        if stays_s >= left_s:
            return under_way_s, move + 1
        left_s -= stays_s
    return under_way_s, MOST_MOVES
