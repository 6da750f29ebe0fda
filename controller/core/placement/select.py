"""P2: where a job goes, now and if its next host is taken back too (paper A, section VI and Algorithm 2).

A destination costs the time to get there. If its owner reclaims it before the job ends, it also costs the time to get
away again, weighted by that probability:

    T_mig(s, d) = C/bw(s, d) + T_r                                        (eq. 10)
    score(d) = T_mig(s, d) + alpha (1 - S_d(T_rem)) mean T_mig(d)         (eq. 11)

Hosts that cannot run the job, or cannot be reached before the notice ends, are excluded first. Where this departs
from the print:

- **mean T_mig(d)** is left open by the paper ("average migration cost from d to other candidates"). Here: the
  mean over the other compatible candidates d' of C/bw(d, d') + T_r; if there is no other, T_mig(s, d).
- **The locality filter** (Lemma 3: same building first) is never better than scoring every host, which is as cheap. It may hide
  a stable host in another building. It is off (`k_min=None`) unless asked for.
- **1 - S saturates**: for a job that outlives every candidate all S are 0 and only bandwidth decides. The expected number of
  reclaims, the integral of the hazard, takes its place: the risk that still distinguishes hosts. Over all moves that a job makes
  it is better by a tenth.
- **A slower GPU has a price**: the time by which the rest of the job takes longer there than on the fastest feasible one. The
  reclaims to expect are those of the time that the rest takes on the candidate's own GPU.
- **Congestion has a price**: the time for which the checkpoints of a host's jobs hold up one another on its uplink.
- A refusal names what was missing and which host came closest.

Bandwidths are lower bounds and survivals come from upper hazards; both are the caller's
(`network.links`, `hazard`).

**Bandwidths** between all hosts are computed by number. Migrations travel a tree, which a campus is or picks of its
trunks (`topologies.paths`). The path from s to d goes up from s to their lowest common switch and down to d, so

    bw(s, d) = min(up from s to that switch, down from that switch to d).

`Places` holds, for one tree, every host's chain of nodes from the root to itself. `Reaches` holds, for one column of
what each link has free, the least rate down to every host from each switch above it. Then bandwidths from one source
to all others are one look-up each.

**The mean over all others** of 1/bw(s, d), which P2 needs of every candidate, would be n^2 bandwidths. But hosts of one switch
whose own links have the same rates left have the same mean and count alike: they are one kind, and kinds are few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from controller.core.network.links import Network
from controller.numerics.arrays import Floats, Mask, Numbers
from controller.numerics.jit import compiled
from topologies.paths import Routes
from topologies.spec import Campus, DirectedLink


class Places:
    """The volunteers of a campus, in the order of their names, and everything about them that does not change."""

    def __init__(self, campus: Campus, hosts: Sequence[str], network: Network, routes: Routes) -> None:
        self.hosts: tuple[str, ...] = tuple(sorted(hosts))
        self.number = {host: number for number, host in enumerate(self.hosts)}
        self.names = np.array(self.hosts, dtype=object)
        specs = [campus.host_by_name[host] for host in self.hosts]
        models = [campus.gpu_by_name[spec.gpu_model or ""] for spec in specs]
        self.buildings = np.array([spec.building for spec in specs], dtype=object)
        self.gpus = np.array([spec.gpus for spec in specs], dtype=float)
        self.memory_bytes = np.array([model.memory_bytes for model in models], dtype=float)
        self.capability = np.array([model.compute_capability for model in models], dtype=float)
        self._models, self._speeds = models, dict[str | None, Floats]()
        # nodes of the tree, and links up and down: a row a level, the root's first, and a column a host, volunteers first.
        # Below a host a node is -1, and a link the number behind the last
        everybody = [*self.hosts, *(host.name for host in campus.hosts if host.name not in self.number)]
        ways = [routes.route(routes.root, host) for host in everybody]
        levels, numbers = max(1, *map(len, ways)), dict[str, int]()
        node = np.full((levels + 1, len(ways)), -1, dtype=np.intp)
        up, down = (np.full((levels, len(ways)), len(network.links), dtype=np.intp) for _ in range(2))
        node[0] = 0
        for place, way in enumerate(ways):
            for level, link in enumerate(way):
                node[level + 1, place] = numbers.setdefault(link.target, len(numbers) + 1)
                down[level, place] = network.number[link]
                up[level, place] = network.number[DirectedLink(link.target, link.source)]
        # of every host: its nodes, and the links up from them
        self.ways = {host: (node[:, n].copy(), up[:, n].copy()) for n, host in enumerate(everybody)}
        count = len(self.hosts)
        self.node, self.up, self.down = (table[:, :count].copy() for table in (node, up, down))
        # its switch and own links (a campus that is one host has none), and the hosts switch by switch
        last = np.array([max(0, len(way) - 1) for way in ways[:count]], dtype=np.intp), np.arange(count)
        self.switch, self.uplink, self.downlink = self.node[last], self.up[last], self.down[last]
        self.line = np.argsort(self.switch, kind="stable")
        self._reaches: Reaches | None = None

    def speeds(self, workload_class: str | None) -> Floats:
        """Return the speed of each volunteer's GPUs for jobs of this class."""
        if workload_class not in self._speeds:
            speeds = [model.speed_of(workload_class) for model in self._models]
            self._speeds[workload_class] = np.array(speeds, dtype=float)
        return self._speeds[workload_class]

    def reaches(self, free_bytes_per_s: Floats) -> Reaches:
        """Return the rates of the tree while each link has so much left, by its number; those asked for last are kept."""
        if self._reaches is None or not np.array_equal(self._reaches.free[:-1], free_bytes_per_s):
            self._reaches = Reaches(self, free_bytes_per_s)
        return self._reaches


class Reaches:
    """Rates up and down the tree while each link has `free_bytes_per_s` left, by its number."""

    def __init__(self, places: Places, free_bytes_per_s: Floats) -> None:
        self._places = places
        self.free: Floats = np.append(free_bytes_per_s, np.inf)  # with that of no link
        # rates to each host from its switch of each level: (levels, hosts); infinite at and below the host itself
        self._down = _least_below(self.free, places.down)
        self._slowness: tuple[Mask, Floats] | None = None  # among these, the means

    def from_host(self, source: str) -> Floats:
        """Return the bandwidth from a host (of any role) to each volunteer, bytes/s; infinite to itself."""
        node, links = self._places.ways[source]
        return _rates_from(self.free, links, self._down, node, self._places.node)

    def mean_slowness(self, among: Mask) -> Floats:
        """Return the mean of 1/bw of each volunteer to the others of `among`, s/byte, over those that it reaches at all.

        Infinite where it reaches no other; NaN where `among` holds no other, and for a host that is not of `among`.
        """
        if self._slowness is None or not np.array_equal(self._slowness[0], among):
            p = self._places
            ends = p.switch, p.uplink, p.downlink
            self._slowness = among, _mean_slowness(self.free, p.line, *ends, p.up, self._down, p.node, among)
        return self._slowness[1]


@compiled
def _mean_slowness(
    free: Floats,
    line: Numbers,
    switch: Numbers,
    uplink: Numbers,
    downlink: Numbers,
    up: Numbers,
    down: Floats,
    node: Numbers,
    among: Mask,
) -> Floats:
    """Return `Reaches.mean_slowness`, found once for each kind of host."""
    means = np.full(len(among), np.nan)
    kind, hosts, members = _kinds(free, line, switch, uplink, downlink, among)
    if members.sum() > 1.0:
        of_kinds = _mean_of_pairs(free, up, down, node, hosts, members)
        for host in range(len(among)):
            if among[host]:
                means[host] = of_kinds[kind[host]]
    return means


@compiled
def _kinds(
    free: Floats, line: Numbers, switch: Numbers, up: Numbers, down: Numbers, among: Mask
) -> tuple[Numbers, Numbers, Floats]:
    """Return each host's kind (-1: not among them), one host of each kind, and how many there are.

    A kind ends where one is not like the one before in the line.
    """
    kind, hosts, members = np.full(len(line), -1), np.empty(len(line), np.intp), np.zeros(len(line))
    kinds, counted, before = 0, True, -1
    for host in line:
        if (
            before < 0
            or switch[host] != switch[before]
            or free[up[host]] != free[up[before]]
            or free[down[host]] != free[down[before]]
        ):
            counted, first = False, host
        if among[host]:
            if not counted:
                hosts[kinds], counted, kinds = first, True, kinds + 1
            kind[host] = kinds - 1
            members[kinds - 1] += 1.0
        before = host
    return kind, hosts[:kinds], members[:kinds]


@compiled
def _least_below(free: Floats, links: Numbers) -> Floats:
    """Return the least of each column from each level on to the last; infinite beyond it."""
    levels, columns = links.shape
    least = np.full((levels + 1, columns), np.inf)
    for level in range(levels - 1, -1, -1):
        for column in range(columns):
            least[level, column] = min(least[level + 1, column], free[links[level, column]])
    return least


@compiled
def _rates_from(free: Floats, links: Numbers, down: Floats, way: Numbers, node: Numbers) -> Floats:
    """Return the rate to each column, over the deepest node that it has in common with the way up, which has these links."""
    up, rates = np.full(len(links) + 1, np.inf), np.empty(node.shape[1])
    for level in range(len(links) - 1, -1, -1):
        up[level] = min(up[level + 1], free[links[level]])
    for host in range(len(rates)):
        common = 0
        while common + 1 < len(way) and way[common + 1] == node[common + 1, host]:
            common += 1
        rates[host] = min(up[common], down[common, host])
    return rates


@compiled
def _mean_of_pairs(
    free: Floats, up_links: Numbers, all_down: Floats, all_nodes: Numbers, hosts: Numbers, members: Floats
) -> Floats:
    """Return the mean of 1/rate of these hosts to all others: by the deepest switch of two, but not below either."""
    up, down, node = _least_below(free, up_links[:, hosts]), all_down[:, hosts], all_nodes[:, hosts]
    levels, means = len(node), np.full(len(hosts), np.inf)
    for one in range(len(hosts)):
        total, count = 0.0, 0.0
        for other in range(len(hosts)):
            common = 0
            while common + 2 < levels and node[common + 1, one] == node[common + 1, other]:
                if node[common + 2, one] < 0 or node[common + 2, other] < 0:
                    break  # a host, not a switch
                common += 1
            rate = min(up[common, one], down[common, other])
            others = members[other] - (1.0 if one == other else 0.0)
            if rate > 0.0 and others > 0.0:
                total, count = total + others / rate, count + others
        if count > 0.0:
            # to 40 bits, so that what is equal but for the order of sums is equal
            mantissa, exponent = math.frexp(total / count)
            means[one] = math.ldexp(np.rint(mantissa * 2.0**40), exponent - 40)
    return means


# ---------------------------------------------------------------- P2


ALPHA = 1.0  # stability penalty, calibrated in paper A, section VI-B; it sweeps .5 to 2
THETA = 1.0  # highest load at which a host still takes a job


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A job that looks for a host: what to carry, what it needs, how long it runs and its source remains."""

    source: str | None  # None: nothing to carry from anywhere (a first start)
    payload_bytes: float  # state to carry; 0: nothing
    memory_bytes: float  # of a GPU, at least
    min_capability: float  # CUDA compute capability, at least
    remaining_s: float  # computing that is left, on a reference GPU
    notice_s: float | None  # None: no deadline
    restart_s: float  # T_r: from the last byte until it runs
    source_building: str | None = None  # where it is now; None: nowhere
    job: str = ""  # whose request it is, for policies that have decided about each job before
    max_load: float = THETA  # theta of Algorithm 2: what a host's load may be
    gpus: int = 1  # that the job computes on
    needs_gpu: bool = True  # else it only keeps checkpoints there


@dataclass(frozen=True, slots=True)
class Candidates:
    """Hosts as P2 sees them, a row each, in the order of their names."""

    hosts: NDArray[np.object_]  # their names
    buildings: NDArray[np.object_]  # where they stand
    free_gpus: Floats  # those that are not taken
    memory_bytes: Floats  # of a GPU there
    capability: Floats  # CUDA compute capability
    load: Floats  # GPUs taken, as a share
    bandwidth_bytes_per_s: Floats  # from the source
    survival: Floats  # S_d(T_rem)
    expected_reclaims: Floats  # the integral of the hazard over the remaining time
    # to another candidate; NaN where no other could take the job, and T_mig(s, d) stands for it
    mean_migration_s: Floats
    # at a departure, of this job and of those that share the host's uplink; 0 for one that only keeps checkpoints
    added_loss_s: Floats
    speed: Floats  # of a GPU there for this job; 1 for rows that ignore it

    def __len__(self) -> int:
        return len(self.hosts)


@dataclass(frozen=True, slots=True)
class DestinationChoice:
    """The destination, its score and what it is made of."""

    host: str  # its name
    score_s: float  # of the rule; where it has none, T_mig
    migration_s: float  # T_mig: until the job runs there
    survival: float  # P(it stays until the job is done)


class Missing(StrEnum):
    """Reasons for a refusal: the first requirement that the last candidates did not meet."""

    CANDIDATE = "no other host is lent"
    GPU = "no host has a free GPU"
    MEMORY = "no free GPU has enough memory"
    CAPABILITY = "no GPU with enough memory has the compute capability"
    LOAD = "every suitable host is above the load limit"
    PATH = "no suitable host can be reached"
    TIME = "no suitable host can be reached before the notice ends"

    @property
    def unit(self) -> str:
        """Unit of a shortfall."""
        units = {Missing.GPU: "GPUs", Missing.MEMORY: "bytes", Missing.PATH: "s", Missing.TIME: "s"}
        return units.get(self, str(self.name).lower())


@dataclass(frozen=True, slots=True)
class NoDestination:
    """Degraded recovery: no host fits."""

    reason: Missing  # what the last candidates lacked
    closest: str | None = None  # the host that came nearest
    # what it lacked: GPUs, bytes, capability, load or seconds (`reason`)
    shortfall: float = math.inf


class Selector(Protocol):
    """Function that picks a policy's destination. `draw` in [0, 1) is for rules that choose at random."""

    def __call__(
        self, request: PlacementRequest, candidates: Candidates, *, draw: float = 0.0
    ) -> DestinationChoice | NoDestination: ...


def migrations_s(request: PlacementRequest, bandwidth_bytes_per_s: Floats) -> Floats:
    """Return T_mig(s, d) = C/bw(s, d) + T_r (eq. 10) of each; infinite without bandwidth."""
    if request.payload_bytes == 0.0:
        return np.full(len(bandwidth_bytes_per_s), request.restart_s)
    with np.errstate(divide="ignore"):
        return request.payload_bytes / bandwidth_bytes_per_s + request.restart_s


def score_s(
    migration_s: Floats | float, risk: Floats | float, mean_migration_s: Floats | float, alpha: float = ALPHA
) -> Floats:
    """Return T_mig + alpha * risk * mean T_mig of each, in seconds (eq. 11)."""
    with np.errstate(invalid="ignore"):
        penalty_s = alpha * risk * mean_migration_s
    nothing = (alpha == 0.0) | (risk == 0.0) | (mean_migration_s == 0.0)
    return np.where(nothing, migration_s, migration_s + penalty_s)


def select(
    request: PlacementRequest,
    candidates: Candidates,
    *,
    draw: float = 0.0,
    alpha: float = ALPHA,
    k_min: int | None = None,
    as_printed: bool = False,
) -> DestinationChoice | NoDestination:
    """Choose the feasible candidate of least score (paper A, Algorithm 2).

    Ties go to the first name, and of infinite scores to the nearest host. `k_min`: keep to the source's building if at least so
    many there (and at least one) are feasible; None: never. `as_printed`: eq. (11)'s risk, 1 - S, and no price of congestion.
    """
    there_s = migrations_s(request, candidates.bandwidth_bytes_per_s)
    rows = _feasible(request, candidates, there_s, in_time=True)
    if isinstance(rows, NoDestination):
        return rows
    if k_min is not None:
        local = rows[candidates.buildings[rows] == request.source_building]
        rows = local if len(local) >= max(1, k_min) else rows
    # where no other host could take the job, leaving takes as long as coming
    away_s = np.where(np.isnan(candidates.mean_migration_s), there_s, candidates.mean_migration_s)
    cost_s = there_s
    if as_printed:
        scores = score_s(cost_s, 1.0 - candidates.survival, away_s, float(alpha))[rows]
    else:
        away_s = away_s + candidates.added_loss_s
        cost_s = there_s + request.remaining_s * (1.0 / candidates.speed - 1.0 / candidates.speed[rows].max())
        scores = score_s(cost_s, candidates.expected_reclaims, away_s, float(alpha))[rows]
    best = int(scores.argmin() if scores.min() < np.inf else cost_s[rows].argmin())
    return _choice(candidates, there_s, int(rows[best]), float(scores[best]))


def select_standby(
    request: PlacementRequest, candidates: Candidates, *, draw: float = 0.0
) -> DestinationChoice | NoDestination:
    """Choose the host to keep a job's checkpoints that costs least.

    A host costs the seconds to send a checkpoint there, and from there to a GPU where it has none free.
    """
    there_s = migrations_s(request, candidates.bandwidth_bytes_per_s)
    rows = _feasible(request, candidates, there_s, in_time=False)
    if isinstance(rows, NoDestination):
        return rows
    on_s = np.nan_to_num(candidates.mean_migration_s - request.restart_s, nan=0.0)
    on_s = np.where(candidates.free_gpus >= request.gpus, 0.0, on_s)
    cost_s = (there_s - request.restart_s + on_s)[rows]
    best = int(cost_s.argmin())
    return _choice(candidates, there_s, int(rows[best]), float(cost_s[best]))


def select_random(
    request: PlacementRequest, candidates: Candidates, *, draw: float = 0.0
) -> DestinationChoice | NoDestination:
    """Choose uniformly among those that can run the job, whether or not they can be reached in time (paper A's B4)."""
    found = able_to_run(request, candidates)
    return found if isinstance(found, NoDestination) else found.choice(int(draw * len(found)))


@dataclass(frozen=True, slots=True)
class Able:
    """The hosts that can run a job, by name, for selectors that have no use for a score."""

    columns: Candidates
    there_s: Floats
    rows: Numbers

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def buildings(self) -> NDArray[np.object_]:
        """The building of each host."""
        found: NDArray[np.object_] = self.columns.buildings[self.rows]
        return found

    def choice(self, place: int) -> DestinationChoice:
        """Return the host at that place; its score is the time to get there."""
        row = int(self.rows[place])
        return _choice(self.columns, self.there_s, row, float(self.there_s[row]))


def able_to_run(request: PlacementRequest, candidates: Candidates) -> Able | NoDestination:
    """Return the hosts that can run the job and be reached, whether or not in time."""
    there_s = migrations_s(request, candidates.bandwidth_bytes_per_s)
    rows = _feasible(request, candidates, there_s, in_time=False)
    return rows if isinstance(rows, NoDestination) else Able(candidates, there_s, rows)


def _choice(columns: Candidates, there_s: Floats, row: int, score_s: float) -> DestinationChoice:
    return DestinationChoice(str(columns.hosts[row]), score_s, float(there_s[row]), float(columns.survival[row]))


def _feasible(
    request: PlacementRequest, columns: Candidates, there_s: Floats, in_time: bool
) -> Numbers | NoDestination:
    """Return the rows that lack nothing; else the first requirement that no row meets, and the host that came closest to it."""
    within_s = request.notice_s if in_time and request.notice_s is not None else math.inf
    lacks = np.array(  # in the order of `Missing`
        (
            (request.gpus if request.needs_gpu else 0) - columns.free_gpus,
            request.memory_bytes - columns.memory_bytes,
            request.min_capability - columns.capability,
            columns.load - request.max_load,
            np.where(there_s < np.inf, 0.0, np.inf),
            there_s - within_s if within_s < math.inf else np.zeros(len(columns)),
        )
    )
    meets = lacks <= 0.0
    missing = np.where(meets.all(axis=0), len(lacks), meets.argmin(axis=0))
    missing[columns.hosts == request.source] = -1
    furthest = int(missing.max(initial=-1))
    rows = np.flatnonzero(missing == furthest)
    if furthest == len(lacks):
        return rows
    if furthest < 0:
        return NoDestination(Missing.CANDIDATE)
    closest = rows[lacks[furthest, rows].argmin()]
    reason = [*Missing][1 + furthest]
    return NoDestination(reason, str(columns.hosts[closest]), float(lacks[furthest, closest]))
