"""Replay of the spot queue of paper B over arrivals that are known (sections III and VI).

Arrivals of jobs and of spots do not depend on which jobs are admitted. So any rule can be tried on the same history,
real or drawn. One kernel serves the simulator, which draws its history, and the controllers that learn by replaying
the recorded one. It decides as the live `SpotQueue` does, job by job, where every job fits every spot and none is
interrupted. It knows two things that paper B does not: waits that end without a spot, and the age of the gap. That is
the time since the last spot arrived, used or not.

**Admission.** A job that finds a standing offer takes the oldest, without waiting, whatever the rule. Otherwise, with
n jobs waiting, it joins if draw < level - n (1 below N, p at N, 0 above, Theorem 4); while the gap's age is neither
below `admit_until_age_s` nor at least `admit_from_age_s` it joins if draw < level - `fewer` - n (never by default).
Else it goes to on-demand at once.

**Leaving.** The oldest waiting job takes a spot that comes. A spot that finds no job waiting stands for
`offer_ttl_s`; 0 is the paper's model, used at once or gone. A job that has waited `longest_wait_s` (the X of
Theorem 2) leaves for on-demand; so do all that wait when the gap reaches `leave_at_age_s`. Jobs admitted at
that age or later wait for the next spot.

**At one moment** things happen in this order: offers whose time is over lapse; spots, in the order given; waits end;
jobs, in the order given. So a spot still serves a job whose wait ends at that moment; a spot that ends a gap of
exactly `leave_at_age_s` sends no job away but has begun a new gap. A job that comes together with a spot sees a gap
of age 0, and finds those gone that left then. It may take the spot only if that stands.

The kernel is a plain function over arrays, in machine code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from controller.numerics.arrays import Floats
from controller.numerics.jit import compiled

Times = Sequence[float] | Floats

# What became of a job.
WAITING: Final = 0
SPOT: Final = 1
REFUSED: Final = 2  # on-demand at once
LEFT: Final = 3  # on-demand after waiting


@dataclass(frozen=True, slots=True)
class Rule:
    """Admission by queue length and by the age of the gap since the last spot; waits that end.

    `level` is r = N + p of Theorem 4. The defaults of the others are paper B's policy. ValueError: negative or not a number.
    """

    level: float
    admit_until_age_s: float = math.inf
    admit_from_age_s: float = math.inf
    leave_at_age_s: float = math.inf
    longest_wait_s: float = math.inf
    fewer: float = math.inf  # jobs by which the level is lower between the two ages

    def __post_init__(self) -> None:
        for each in fields(self):
            if not getattr(self, each.name) >= 0.0:
                raise ValueError(f"{each.name} = {getattr(self, each.name)}: 0 or more")

    def admit_probability(self, queue_length: int, age_s: float) -> float:
        """Return the probability of admission of a job that finds so many waiting, so long after the last offer."""
        is_between = self.admit_until_age_s <= age_s < self.admit_from_age_s
        return admit_probability(self.level - self.fewer if is_between else self.level, queue_length)


def admit_probability(level: float, queue_length: int) -> float:
    """Return 1 below N, p at N, 0 above, where level r = N + p (paper B, Theorem 4, Algorithm 1 line 4)."""
    return min(1.0, max(0.0, level - queue_length))


@dataclass(slots=True)
class Statistics:
    """Counts over all jobs so far; a job counts once, when it first leaves the queue."""

    arrivals: int = 0
    spot: int = 0  # jobs that took a spot
    on_demand: int = 0  # jobs that were refused, or left
    total_delay_s: float = 0.0  # of all jobs that left the queue, 0 of those refused

    @property
    def left(self) -> int:
        """Jobs that left, for a spot or for on-demand."""
        return self.spot + self.on_demand

    @property
    def mean_delay_s(self) -> float:
        """E[T] over all jobs that left, those sent to on-demand counting 0; 0 while none has left."""
        return self.total_delay_s / self.left if self.left else 0.0

    def mean_cost(self, k: float) -> float:
        """Return E[C]: 1 for a job that took a spot, k for one that did not; 0 while none has left."""
        return (self.spot + k * self.on_demand) / self.left if self.left else 0.0


@dataclass(frozen=True, slots=True)
class QueueState:
    """State at the begin and end of a replay, so that a long history can be run in pieces."""

    waiting_since_s: tuple[float, ...] = ()  # arrivals of the waiting jobs, oldest first
    standing_since_s: tuple[float, ...] = ()  # of the offers that may still stand, oldest first
    last_spot_s: float = 0.0  # when the gap began; -infinity for a gap older than any age

    def shifted(self, by_s: float) -> QueueState:
        """Return the same state on a clock that shows `by_s` more."""
        return QueueState(
            tuple(since_s + by_s for since_s in self.waiting_since_s),
            tuple(since_s + by_s for since_s in self.standing_since_s),
            self.last_spot_s + by_s,
        )


@dataclass(slots=True, eq=False)
class ReplayOutcome(Statistics):
    """Outcomes of the jobs that left during a replay, those that waited at its start included."""

    spots: int = 0  # that came
    idle_spots: int = 0  # of them, that found no job waiting (their part is pi_0 of Theorem 1)
    end: QueueState = QueueState()
    # of each job, those that waited at the start first; None unless asked for
    decisions: NDArray[np.int8] | None = None  # WAITING, SPOT, REFUSED or LEFT
    delays_s: Floats | None = None  # NaN while waiting


def replay(
    rule: Rule,
    job_times_s: Times,
    spot_times_s: Times,
    draws: Times,
    offer_ttl_s: float = 0.0,
    start: QueueState = QueueState(),
    *,
    record: bool = False,
) -> ReplayOutcome:
    """Run the rule over jobs and spots that arrive at the given times, both sorted, none before those of `start`.

    draws: one a job, in [0, 1); the same draws admit the more the higher the level. `record`: keep what became
    of each job. Waits that end after the last arrival are left to the next piece. Takes time in proportion to the jobs and spots.
    ValueError: not one draw a job; an `offer_ttl_s` below 0; times that go backwards.
    """
    if len(draws) != len(job_times_s):
        raise ValueError(f"{len(draws)} draws for {len(job_times_s)} jobs: one each")
    if not offer_ttl_s >= 0.0:
        raise ValueError(f"offer_ttl_s {offer_ttl_s}: 0 or more")
    times_s = _joined("job", start.waiting_since_s, job_times_s)
    spots_s = _joined("spot", start.standing_since_s, spot_times_s)
    decisions = np.zeros(len(times_s) if record else 0, np.int8)
    delays_s = np.full(len(decisions), math.nan)
    history = (times_s, spots_s, np.ascontiguousarray(draws, np.float64))
    numbers = (*astuple(rule), offer_ttl_s)
    carried = (len(start.waiting_since_s), len(start.standing_since_s), float(start.last_spot_s))
    waiting = np.empty(len(times_s), np.int64)
    kernel: Callable[..., Any] = run
    answer = kernel(*history, *map(float, numbers), *carried, waiting, decisions, delays_s)
    spot, on_demand, total_s, idle, last_s, head, tail, oldest = answer
    since_s = times_s[waiting[head:tail]]
    # spots that no job took, and that have not lapsed at the last arrival
    standing_s = spots_s[oldest:]
    latest_s = max((float(series[-1]) for series in (times_s, standing_s) if len(series)), default=-math.inf)
    standing_s = standing_s[standing_s + offer_ttl_s > latest_s]
    end = QueueState(tuple(since_s.tolist()), tuple(standing_s.tolist()), float(last_s))
    recorded = (decisions, delays_s) if record else ()
    return ReplayOutcome(len(draws), spot, on_demand, total_s, len(spot_times_s), idle, end, *recorded)


@compiled
def run(
    times_s: Any,
    spots_s: Any,
    draws: Any,
    level: float,
    admit_until_s: float,
    admit_from_s: float,
    leave_s: float,
    longest_s: float,
    fewer: float,
    ttl_s: float,
    carried: int,
    standing: int,
    last_s: float,
    waiting: Any,
    decisions: Any,
    delays_s: Any,
) -> tuple[int, int, float, int, float, int, int, int]:
    """Run the kernel: merge jobs and spots in time; `carried` jobs wait and `standing` spots stand at the start.

    waiting[head:tail] are the indices of the waiting jobs. A job that waits saw no offer, so the standing ones are
    always a run spots_s[oldest:coming] of the spots that came. `decisions` and `delays_s` are filled if they are not
    empty. Returns (spot, on_demand, total_delay_s, idle_spots, last_s, head, tail, oldest).

    It is one function since every branch changes the same few numbers. With only the waits that end taken out into
    another, inlined or not, it ran 20 instead of 48 million jobs/s.
    """
    jobs, spots, is_recording = len(times_s), len(spots_s), len(decisions) > 0
    job, coming, oldest, head, tail = carried, standing, 0, 0, carried
    spot, on_demand, idle, total_s = 0, 0, 0, 0.0
    for index in range(carried):
        waiting[index] = index
    while job < jobs or coming < spots:
        is_spot = coming < spots and (job == jobs or spots_s[coming] <= times_s[job])
        now_s = spots_s[coming] if is_spot else times_s[job]
        while head < tail:  # waits that end
            since_s = times_s[waiting[head]]
            until_s = since_s + longest_s
            if since_s < last_s + leave_s < until_s:
                until_s = last_s + leave_s
            if until_s > now_s or (is_spot and until_s == now_s):
                break
            on_demand += 1
            total_s += until_s - since_s
            if is_recording:
                decisions[waiting[head]], delays_s[waiting[head]] = LEFT, until_s - since_s
            head += 1
        if is_spot:
            if head < tail:
                delay_s = now_s - times_s[waiting[head]]
                spot += 1
                total_s += delay_s
                if is_recording:
                    decisions[waiting[head]], delays_s[waiting[head]] = SPOT, delay_s
                head += 1
                oldest = coming + 1
            else:
                idle += 1
            last_s = now_s
            coming += 1
            continue
        while oldest < coming and spots_s[oldest] + ttl_s <= now_s:  # offers that lapse
            oldest += 1
        age_s = now_s - last_s
        here = level if age_s < admit_until_s or age_s >= admit_from_s else level - fewer
        decision = REFUSED
        if oldest < coming:
            decision = SPOT
            oldest += 1
            spot += 1
        elif draws[job - carried] < here - (tail - head):
            decision = WAITING
            waiting[tail] = job
            tail += 1
        else:
            on_demand += 1
        if is_recording and decision != WAITING:
            decisions[job], delays_s[job] = decision, 0.0
        job += 1
    return spot, on_demand, total_s, idle, last_s, head, tail, oldest


def _joined(name: str, before: Sequence[float], values: Times) -> Floats:
    array = np.ascontiguousarray(values, np.float64)
    joined = np.concatenate((np.asarray(before, np.float64), array)) if before else array
    if not (joined[1:] >= joined[:-1]).all():
        raise ValueError(f"{name} times go backwards: sorted ones, none before those of the start")
    return joined
