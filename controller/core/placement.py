"""P2: where a job goes, now and if its next host is taken back too (paper A, section VI and Algorithm 2).

A destination costs the time to get there and, with the probability that its owner reclaims it before the job
ends, the time to get away again:

    T_mig(s, d) = C/bw(s, d) + T_r                                        (eq. 10)
    score(d) = T_mig(s, d) + alpha (1 - S_d(T_rem)) mean T_mig(d)         (eq. 11)

after those that cannot run the job, or cannot be reached before the notice ends, are excluded. Where this
departs from the print:

- **mean T_mig(d)** is left open by the paper ("average migration cost from d to other candidates"). Here: the
  mean over the other compatible candidates d' of C/bw(d, d') + T_r; with nobody else, T_mig(s, d).
- **The locality filter** (Lemma 3: same building first) is never better than scoring everybody, which is as
  cheap, and it may hide a stable host next door. It is off (`k_min=None`) unless asked for.
- **1 - S saturates**: for a job that outlives every candidate all S are 0 and only bandwidth decides.
  `second_form` takes the expected number of reclaims, the integral of the hazard, in its place: the risk that
  still tells hosts apart.
- A failure says what was missing and who came closest.

Bandwidths are lower bounds and survivals come from upper hazards; both are the caller's (`bandwidth`,
`hazard`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Protocol

from controller.core.checkpointing import transfer_s

ALPHA = 1.0  # stability penalty, calibrated in paper A, section VI-B; it sweeps .5 to 2
THETA = 1.0  # highest load at which a host still takes a job


@dataclass(frozen=True, slots=True)
class Request:
    """A job that looks for a host: what to carry, what it needs, how long it runs and its source remains.

    `notice_s` None: no deadline. `source` None: nothing to carry from anywhere (a first start).
    """

    source: str | None
    payload_bytes: float
    memory_bytes: float
    min_capability: float
    remaining_s: float
    notice_s: float | None
    restart_s: float
    source_building: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A host as P2 sees it. `survival` is S_d(T_rem); `bandwidth_bytes_per_s` is from the source.

    `mean_migration_s` None: nobody else could take the job, so T_mig(s, d) stands for it. `expected_reclaims`
    None: -ln S_d.
    """

    host: str
    building: str
    free_gpus: int
    memory_bytes: float
    capability: float
    load: float
    bandwidth_bytes_per_s: float
    survival: float
    mean_migration_s: float | None = None
    expected_reclaims: float | None = None

    @property
    def reclaims_to_expect(self) -> float:
        """The integral of its hazard over the remaining time; infinite where S underflowed to 0."""
        if self.expected_reclaims is not None:
            return self.expected_reclaims
        return -math.log(self.survival) if self.survival > 0.0 else math.inf


@dataclass(frozen=True, slots=True)
class Choice:
    """The destination, its score and what it is made of."""

    host: str
    score_s: float
    migration_s: float
    survival: float


class Missing(StrEnum):
    """Why nobody is left: the first requirement that the last candidates did not meet."""

    CANDIDATE = "no other host is lent"
    GPU = "no host has a free GPU"
    MEMORY = "no free GPU has enough memory"
    CAPABILITY = "no GPU with enough memory has the compute capability"
    LOAD = "every suitable host is above the load limit"
    PATH = "no suitable host can be reached"
    TIME = "no suitable host can be reached before the notice ends"


@dataclass(frozen=True, slots=True)
class NoDestination:
    """Degraded recovery: nobody fits. `closest` came nearest.

    It lacked `shortfall`: GPUs, bytes, capability, load or seconds, as the reason says.
    """

    reason: Missing
    closest: str | None = None
    shortfall: float = math.inf


class Selector(Protocol):
    """How a policy picks a destination. `draw` in [0, 1) is for those that choose at random."""

    def __call__(
        self, request: Request, candidates: Sequence[Candidate], *, draw: float = 0.0
    ) -> Choice | NoDestination: ...


def migration_s(request: Request, candidate: Candidate) -> float:
    """T_mig(s, d) = C/bw(s, d) + T_r (eq. 10); infinite without bandwidth."""
    return transfer_s(request.payload_bytes, candidate.bandwidth_bytes_per_s) + request.restart_s


def score_s(migration_s: float, risk: float, mean_migration_s: float, alpha: float = ALPHA) -> float:
    """T_mig + alpha * risk * mean T_mig, in seconds (eq. 11).

    `risk` is 1 - S, or the expected number of reclaims in the second form.
    """
    if alpha * risk == 0.0:  # even if there is no way on from there
        return migration_s
    return migration_s + alpha * risk * mean_migration_s


def select(
    request: Request,
    candidates: Sequence[Candidate],
    *,
    draw: float = 0.0,
    alpha: float = ALPHA,
    k_min: int | None = None,
    theta: float = THETA,
    second_form: bool = False,
) -> Choice | NoDestination:
    """The feasible candidate of least score (paper A, Algorithm 2); ties go to the first name.

    `k_min`: keep to the source's building if at least so many there (and at least one) are feasible; None:
    never.
    """
    feasible = _feasible(request, candidates, theta, in_time=True)
    if isinstance(feasible, NoDestination):
        return feasible
    if k_min is not None:
        feasible = _local_first(request, feasible, k_min)
    scored = [_scored(request, candidate, alpha, second_form) for candidate in feasible]
    return min(scored, key=lambda choice: (choice.score_s, choice.host))


def select_random(
    request: Request, candidates: Sequence[Candidate], *, draw: float = 0.0, theta: float = THETA
) -> Choice | NoDestination:
    """Uniform among those that can run the job, whether or not they can be reached in time (paper A's B4)."""
    able = _feasible(request, candidates, theta, in_time=False)
    if isinstance(able, NoDestination):
        return able
    ordered = sorted(able, key=lambda candidate: candidate.host)
    return _scored(request, ordered[int(draw * len(ordered))], alpha=0.0, second_form=False)


def mean_migration_s(
    host: str,
    candidates: Iterable[str],
    payload_bytes: float,
    restart_s: float,
    bandwidth: Callable[[str, str], float],
) -> float | None:
    """mean T_mig(d) over the other candidates that d reaches at all; None where there is no other candidate.

    One destination, any bandwidths. `mean_migrations_s` does all destinations of a tree at once.
    """
    others = [bandwidth(host, other) for other in candidates if other != host]
    if not others:
        return None
    times = [transfer_s(payload_bytes, rate) for rate in others if rate > 0.0]
    return math.fsum(times) / len(times) + restart_s if times else math.inf


@dataclass(frozen=True, slots=True)
class Reach:
    """How a host is connected: its rates up to, and down from, the switch that it shares with its `group`."""

    host: str
    group: str
    up_bytes_per_s: float
    down_bytes_per_s: float


def mean_migrations_s(
    reaches: Sequence[Reach],
    between: Callable[[str, str], float],
    payload_bytes: float,
    restart_s: float,
) -> dict[str, float | None]:
    """`mean_migration_s` of every host, where bw(d, d') = min(up(d), between(group, group'), down(d')).

    Time n * groups * log n, not n^2: C/bw is the largest of three terms, and a group whose 1/down' are
    sorted, with sums from the end, answers "the sum of max(a, 1/down')" by one search.
    """
    groups: dict[str, list[float]] = {}
    for reach in reaches:
        if reach.down_bytes_per_s > 0.0:
            groups.setdefault(reach.group, []).append(1.0 / reach.down_bytes_per_s)
    sums = {name: _TailSums(slowness) for name, slowness in groups.items()}
    if len(reaches) == 1:
        return {reaches[0].host: None}
    return {reach.host: _mean_slowness(reach, sums, between) * payload_bytes + restart_s for reach in reaches}


class _TailSums:
    """Sorted numbers with the sums of their tails."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values = sorted(values)
        self.tails = [*accumulate(reversed(self.values), initial=0.0)][::-1]

    def sum_of_larger(self, least: float) -> float:
        """The sum of max(least, value)."""
        smaller = bisect_right(self.values, least)
        return smaller * least + self.tails[smaller]


def _mean_slowness(reach: Reach, sums: dict[str, _TailSums], between: Callable[[str, str], float]) -> float:
    """Mean of 1/bw to the others, in s/byte; infinite where none is reachable."""
    total, count = 0.0, 0
    for group, members in sums.items():
        rate = min(reach.up_bytes_per_s, between(reach.group, group))
        if rate <= 0.0:
            continue
        total += members.sum_of_larger(1.0 / rate)
        count += len(members.values)
        if group == reach.group and reach.down_bytes_per_s > 0.0:  # not to itself
            total -= max(1.0 / rate, 1.0 / reach.down_bytes_per_s)
            count -= 1
    return total / count if count else math.inf


def _feasible(
    request: Request, candidates: Sequence[Candidate], theta: float, in_time: bool
) -> list[Candidate] | NoDestination:
    """Those that lack nothing, or the first requirement that leaves nobody, and who came closest to it."""
    left = [candidate for candidate in candidates if candidate.host != request.source]
    closest, shortfall = None, math.inf
    reason = Missing.CANDIDATE
    for missing, lacks in _REQUIREMENTS:
        if not left:
            break
        if missing is Missing.TIME and not in_time:
            continue
        lacking = [(lacks(request, candidate, theta), candidate.host) for candidate in left]
        (shortfall, closest), reason = min(lacking), missing
        left = [candidate for candidate, (lack, _) in zip(left, lacking, strict=True) if lack <= 0.0]
    return left or NoDestination(reason, closest, shortfall)


def _lacks_time(request: Request, candidate: Candidate, theta: float) -> float:
    if request.notice_s is None:
        return 0.0
    return migration_s(request, candidate) - request.notice_s


def _lacks_path(request: Request, candidate: Candidate, theta: float) -> float:
    return 0.0 if migration_s(request, candidate) < math.inf else math.inf


_REQUIREMENTS: tuple[tuple[Missing, Callable[[Request, Candidate, float], float]], ...] = (
    (Missing.GPU, lambda request, candidate, theta: 1.0 - candidate.free_gpus),
    (Missing.MEMORY, lambda request, candidate, theta: request.memory_bytes - candidate.memory_bytes),
    (Missing.CAPABILITY, lambda request, candidate, theta: request.min_capability - candidate.capability),
    (Missing.LOAD, lambda request, candidate, theta: candidate.load - theta),
    (Missing.PATH, _lacks_path),
    (Missing.TIME, _lacks_time),
)


def _local_first(request: Request, feasible: list[Candidate], k_min: int) -> list[Candidate]:
    local = [candidate for candidate in feasible if candidate.building == request.source_building]
    return local if len(local) >= max(1, k_min) else feasible


def _scored(request: Request, candidate: Candidate, alpha: float, second_form: bool) -> Choice:
    there_s = migration_s(request, candidate)
    away_s = there_s if candidate.mean_migration_s is None else candidate.mean_migration_s
    risk = candidate.reclaims_to_expect if second_form else 1.0 - candidate.survival
    return Choice(candidate.host, score_s(there_s, risk, away_s, alpha), there_s, candidate.survival)
