"""Random sets of migrations, and the most of them that any schedule could deliver.

**The laws.** Paper A gives payloads from 120 MB to 48 GB with a median of 3.2 GB (section IV-B, F2), notices of 10 s and
more, up to 7 departures at once, links of 1 Gbit/s and beta = .3, so B_mig = 87.5 MB/s. It gives no law. Here: a payload
is lognormal with that median and a spread, cut to the range; the time tau - T_r is exponential, at least 10 s.
`FITTED`: spread and mean were fitted to the counts that earlier work on the paper found for its own law (`NOTED`), which is
not recorded: eight figures, two parameters, so that these counts come out again proves nothing. `CAMPUS` has the payloads
and notices of the paper's campus as this project plays it (`traces.paper_campus`), chosen for other reasons: by
it the rules are judged.

**The judge.** Between two consecutive first or due times the amount of each payload is all that matters, so "how many can be
delivered" is a mixed-integer program in these amounts; HiGHS solves it to the optimum.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

from controller.core.admission.admission import MigrationRequest, migration_share
from experiments.inputs.traces.paper_campus import PaperCampus
from topologies.paths import Routes
from topologies.presets import three_tier
from topologies.spec import DirectedLink, ResearchReserve, Role

LINK = DirectedLink("provider", "campus")
SHARE_BYTES_PER_S = 87.5e6
MEDIAN_BYTES, LEAST_BYTES, MOST_BYTES = 3.2e9, 0.12e9, 48e9
LEAST_S = 10.0
NOTED = {
    7: {"EDF, stops": 0.66, "EDF, skips": 3.60, "smallest demand": 3.99, "fluid EDF": 4.67},
    15: {"EDF, stops": 0.31, "EDF, skips": 4.70, "smallest demand": 6.96, "fluid EDF": 9.06},
}


@dataclass(frozen=True, slots=True)
class WaveLaw:
    """`payload_sigma`: of the logarithm of a payload; `mean_s`: of the time tau - T_r."""

    payload_sigma: float
    mean_s: float


FITTED = WaveLaw(1.4, 180.0)
CAMPUS = WaveLaw(PaperCampus().payload_sigma, PaperCampus().notice_mean_s)

Share = dict[DirectedLink, float]


def payload_bytes(rng: random.Random, law: WaveLaw = FITTED) -> float:
    """One checkpoint's size."""
    size = MEDIAN_BYTES * math.exp(law.payload_sigma * rng.gauss(0.0, 1.0))
    return min(max(size, LEAST_BYTES), MOST_BYTES)


def time_s(rng: random.Random, law: WaveLaw = FITTED) -> float:
    """tau - T_r of one notice."""
    return max(LEAST_S, rng.expovariate(1.0 / law.mean_s))


def on_one_link(count: int, rng: random.Random, law: WaveLaw = FITTED) -> list[MigrationRequest]:
    """Notices given at the same moment, 0, all over `LINK`."""
    return [
        MigrationRequest(f"m{n:02}", payload_bytes(rng, law), time_s(rng, law), 0.0, (LINK,))
        for n in range(count)
    ]


def across_a_campus(count: int, rng: random.Random) -> tuple[list[MigrationRequest], Share]:
    """Notices at the same moment on hosts of two buildings: some may start late, some have slow disks (caps)."""
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
    """The largest number of them that some schedule delivers in time. RuntimeError if HiGHS does not finish."""
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
