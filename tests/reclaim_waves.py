"""Random sets of migrations, the most of them that any schedule could deliver, and a link that follows them over time.

A payload is lognormal with paper A's median of 3.2 GB, cut to its range; the time tau - T_r is exponential, at least 10 s.

The optimum: between two consecutive first or due times only the amount of each payload matters. The number that can be delivered
is a mixed-integer program in these amounts, which HiGHS solves.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

from controller.core.admission.admission import Admit, Commitment, migration_share, share_totals
from controller.core.admission.schedule import MigrationRequest
from controller.core.network.links import Network
from controller.core.network.sharing import Demand, in_columns
from topologies.paths import Routes
from topologies.presets import three_tier
from topologies.spec import DirectedLink, ResearchReserve, Role

LINK = DirectedLink("provider", "campus")
SHARE_BYTES_PER_S = 87.5e6
MEDIAN_BYTES, LEAST_BYTES, MOST_BYTES = 3.2e9, 0.12e9, 48e9
LEAST_S = 10.0
PAYLOAD_SIGMA, MEAN_S = 1.4, 180.0
INTERARRIVAL_S = 24.0  # four times what the link could carry
TOLERANCE_S = 1e-6

Share = dict[DirectedLink, float]


def payload_bytes(rng: random.Random) -> float:
    """Draw the size of a checkpoint."""
    size = MEDIAN_BYTES * math.exp(PAYLOAD_SIGMA * rng.gauss(0.0, 1.0))
    return min(max(size, LEAST_BYTES), MOST_BYTES)


def time_s(rng: random.Random) -> float:
    """Draw tau - T_r of a notice."""
    return max(LEAST_S, rng.expovariate(1.0 / MEAN_S))


def on_one_link(count: int, rng: random.Random) -> list[MigrationRequest]:
    """Draw notices given at time 0, all over `LINK`."""
    return [MigrationRequest(f"m{n:02}", payload_bytes(rng), time_s(rng), 0.0, (LINK,)) for n in range(count)]


def across_a_campus(count: int, rng: random.Random) -> tuple[list[MigrationRequest], Share]:
    """Draw notices at time 0 on hosts of two buildings: some may start late, some have slow disks (caps)."""
    campus = three_tier(
        6, 2, 0, uplink_bytes_per_s=rng.choice([125e6, 250e6]), reserve=ResearchReserve(beta=0.3)
    )
    share, routes = migration_share(campus.capacity_bytes_per_s, campus.research_reserve), Routes(campus)
    hosts = [host.name for host in campus.hosts if host.role is Role.VOLUNTEER]
    requests = []
    for number in range(count):
        source, destination = rng.sample(hosts, 2)
        window_s = time_s(rng)
        start_s = rng.choice([0.0, 0.0, rng.uniform(0.0, 60.0)])
        cap = rng.choice([math.inf, math.inf, rng.uniform(20e6, 80e6)])
        links, size = routes.route(source, destination), payload_bytes(rng)
        due_s = start_s + window_s
        requests.append(
            MigrationRequest(f"m{number:02}", size, due_s, 0.0, links, start_s, cap_bytes_per_s=cap)
        )
    return requests, share


def most_deliverable(requests: Sequence[MigrationRequest], share: Share, now_s: float = 0.0) -> int:
    """Return how many of them the best schedule delivers in time. RuntimeError if HiGHS does not finish."""
    moments = {now_s, *(max(now_s, r.start_s) for r in requests), *(r.due_s for r in requests)}
    spans = list(pairwise(sorted(at_s for at_s in moments if at_s >= now_s)))
    flows = [
        (k, i)
        for k, r in enumerate(requests)
        for i, s in enumerate(spans)
        if max(now_s, r.start_s) <= s[0] and s[1] <= r.due_s
    ]
    # columns: bytes of each (flow, span), then whether each flow is chosen; bytes in units of the largest payload
    unit = max((r.payload_bytes for r in requests), default=1.0)
    lengths_s = [until_s - from_s for from_s, until_s in spans]
    caps = [requests[k].cap_bytes_per_s * lengths_s[i] / unit for k, i in flows]
    kind = np.repeat([0, 1], [len(flows), len(requests)])
    # rows: a chosen flow is delivered whole; in each span each link carries no more than its share
    links = sorted({link for r in requests for link in r.links}, key=str)
    rows = lil_matrix((len(requests) + len(links) * len(lengths_s), len(flows) + len(requests)))
    limits = [0.0] * len(requests) + [
        share[link] * length_s / unit for link in links for length_s in lengths_s
    ]
    for k, request in enumerate(requests):
        rows[k, len(flows) + k] = request.payload_bytes / unit
    for column, (k, i) in enumerate(flows):
        rows[k, column] = -1.0
        for link in requests[k].links:
            rows[len(requests) + links.index(link) * len(lengths_s) + i, column] = 1.0
    solved = milp(
        -kind,
        constraints=LinearConstraint(rows.tocsr(), -np.inf, np.array(limits)),
        bounds=Bounds(0.0, np.concatenate([np.array(caps), np.ones(len(requests))])),
        integrality=kind,
    )
    if not solved.success:
        raise RuntimeError(f"HiGHS: {solved.message}")
    return round(float(-solved.fun))


def arrivals(count: int, rng: random.Random) -> list[MigrationRequest]:
    """Draw Poisson arrivals over `LINK`; each may start when it comes."""
    requests, at_s = list[MigrationRequest](), 0.0
    for n in range(count):
        at_s += rng.expovariate(1.0 / INTERARRIVAL_S)
        requests.append(
            MigrationRequest(f"m{n:05}", payload_bytes(rng), at_s + time_s(rng), 0.0, (LINK,), at_s)
        )
    return requests


@dataclass
class OnlineLink:
    """Admitted migrations on one link, followed to the last byte.

    Constant rates: each flow has its floor, the rest is shared max-min. Varying rates: a timetable, planned at each arrival.
    """

    admit: Admit
    varies: bool
    now_s: float = 0.0
    left: dict[str, MigrationRequest] = field(default_factory=dict)  # admitted, with what is still to be sent
    floors: dict[str, float] = field(default_factory=dict)
    admitted: int = 0
    missed: int = 0

    def arrive(self, request: MigrationRequest) -> None:
        """Follow the present rates until it comes, then ask for admission."""
        while self.left and self._step(request.start_s):
            pass
        self.now_s = request.start_s
        answer = self.admit([request], self.now_s, {LINK: SHARE_BYTES_PER_S}, self._commitments())
        if request.key in answer.admitted:
            self.admitted += 1
            self.left[request.key] = request
            self.floors[request.key] = answer.admitted[request.key]

    def finish(self) -> None:
        """Follow all to the last byte."""
        while self.left and self._step(math.inf):
            pass

    def _commitments(self) -> list[Commitment]:
        if self.varies:
            return list(self.left.values())
        return [self._demand(key) for key in self.left]

    def _demand(self, key: str) -> Demand:
        return Demand(key, (LINK,), 1.0, self.floors[key])

    def _step(self, until_s: float) -> bool:
        """Step to the next change of a rate, at most to `until_s`; return whether `until_s` is still ahead."""
        rates, change_s = self._rates()
        ends_s = [self.now_s + r.payload_bytes / rates[k] for k, r in self.left.items() if rates[k] > 0.0]
        to_s = min([until_s, change_s, *ends_s])
        for key, request in list(self.left.items()):
            rest = request.payload_bytes - rates[key] * (to_s - self.now_s)
            if rest > TOLERANCE_S * SHARE_BYTES_PER_S:
                self.left[key] = replace(request, payload_bytes=rest)
            else:
                del self.left[key]
                self.missed += to_s > request.due_s + TOLERANCE_S
        self.now_s = to_s
        return to_s < until_s

    def _rates(self) -> tuple[dict[str, float], float]:
        if self.varies:
            plan = self.admit([], self.now_s, {LINK: SHARE_BYTES_PER_S}, self._commitments()).timetable
            return {key: plan.rate_at(key, self.now_s) for key in self.left}, plan.next_change_s(self.now_s)
        network = Network([LINK])
        wants = in_columns([self._demand(key) for key in sorted(self.left)], network)
        rates, _ = share_totals(wants, network.column({LINK: SHARE_BYTES_PER_S}))
        return dict(zip(sorted(self.left), rates.tolist(), strict=True)), math.inf
