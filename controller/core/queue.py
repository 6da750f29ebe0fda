"""The spot queue: who waits for a volunteered GPU and who goes to on-demand at once (paper B).

A job that finds n jobs waiting joins if n < N, with probability p if n = N, and otherwise leaves for an
on-demand host at cost k. A spot offer takes the oldest waiting job that fits, at cost 1. With Poisson jobs
and Poisson offers this is optimal over all policies that keep the mean delay of all jobs at delta (Theorem
4); r = N + p is one number, and the mean delay grows with it. Since nobody knows the arrival laws, r is
learned (Algorithm 1). As printed it is wrong three times, so `Algorithm1` is the corrected loop:

- its loop condition is inverted: it runs while the error is small;
- turned round, it would stop at the first small error, which leaves 8 % of median error; here it runs for
  ever;
- its step eta <- eta (d - delta) compounds and drives r to r_max; here the step is alpha (d - delta).

The measured d is the mean delay of the jobs that left during W arrivals, on-demand ones counting 0, as delta
counts them.

Delay is from submission to first dispatch. An interrupted job goes back to the head: it is not an arrival,
and its delay has been counted. Jobs that were interrupted wait in the order of their interruption, before all
others, and count in n.

Offers live for `offer_ttl_s`. 0 is the paper's model: used at once or gone. Infinity is a patient campus: the
offer stands until its owner withdraws it, and a job that arrives and fits takes it without waiting, whatever
r says.

Randomness and time are arguments: `draw` in [0, 1) decides the admission with probability p.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

WINDOW = 100  # W: with alpha of .005 to .01 an hour and r_max = 8 it converges in all cases of paper B
R_MAX = 8.0


@dataclass(frozen=True, slots=True)
class SpotJob:
    """What a job needs of a GPU."""

    key: str
    memory_bytes: float = 0.0
    min_capability: float = 0.0


@dataclass(frozen=True, slots=True)
class Offer:
    """A GPU that stands ready until `expires_s` (that moment excluded)."""

    offer_id: int
    expires_s: float = math.inf
    memory_bytes: float = math.inf
    capability: float = math.inf

    def suits(self, job: SpotJob) -> bool:
        """Whether the job can run on it."""
        return job.memory_bytes <= self.memory_bytes and job.min_capability <= self.capability


@dataclass(frozen=True, slots=True)
class Queued:
    """The job waits; `ahead` are before it."""

    ahead: int


@dataclass(frozen=True, slots=True)
class OnDemand:
    """The job goes to an on-demand host at once, at cost k; `ahead` would have been before it."""

    ahead: int


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The job takes the offer, after waiting `delay_s`. `first`: never before, so it was counted now."""

    job: str
    offer_id: int
    delay_s: float
    first: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """Nobody fits the offer; it stands until `expires_s`."""

    offer_id: int
    expires_s: float


@dataclass(frozen=True, slots=True)
class Lapsed:
    """Nobody fits the offer, and it does not wait."""

    offer_id: int


class Controller(Protocol):
    """Decides on admission. Told of every arrival and of the delay of every job that left."""

    level: float

    def admit_probability(self, queue_length: int) -> float:
        """For a job that finds so many waiting."""

    def arrived(self) -> None:
        """A job was submitted."""

    def left(self, delay_s: float) -> None:
        """A job was dispatched for the first time, or went to on-demand (delay 0)."""


def admit_probability(level: float, queue_length: int) -> float:
    """1 below N, p at N, 0 above, where level r = N + p (paper B, Theorem 4, Algorithm 1 line 4)."""
    return min(1.0, max(0.0, level - queue_length))


def next_level(
    level: float, mean_delay_s: float, target_delay_s: float, step_per_s: float, r_max: float = R_MAX
) -> float:
    """r <- clip(r - alpha (d - delta), 0, r_max) (paper B, Algorithm 1, lines 7 and 8, corrected)."""
    return min(r_max, max(0.0, level - step_per_s * (mean_delay_s - target_delay_s)))


class Fixed:
    """r that stays. 0: everybody goes to on-demand; infinity: everybody waits."""

    def __init__(self, level: float) -> None:
        if not level >= 0.0:
            raise ValueError(f"r = {level}: 0 or more")
        self.level = level

    def admit_probability(self, queue_length: int) -> float:
        """By r."""
        return admit_probability(self.level, queue_length)

    def arrived(self) -> None:
        """Learns nothing."""

    def left(self, delay_s: float) -> None:
        """Learns nothing."""


class Algorithm1(Fixed):
    """r, corrected after every `window` arrivals from the mean delay of the jobs that left meanwhile.

    `target_delay_s` is delta, `step_per_s` alpha. alpha is in the same time as the delays: .01 an hour is
    .01/3600 a second, and a scenario whose time runs s times faster has alpha s times larger. A window in
    which nobody left changes nothing and goes on.
    """

    def __init__(
        self,
        target_delay_s: float,
        step_per_s: float,
        window: int = WINDOW,
        r0: float = 1.0,
        r_max: float = R_MAX,
    ) -> None:
        super().__init__(r0)
        if not 0.0 <= target_delay_s < math.inf:
            raise ValueError(f"target delay {target_delay_s} s: a finite duration of 0 or more")
        if not 0.0 < step_per_s < math.inf:
            raise ValueError(f"step {step_per_s} per s: a finite number above 0")
        if window < 1 or not r0 <= r_max < math.inf:
            raise ValueError(
                f"window {window}, r0 {r0}, r_max {r_max}: window >= 1 and r0 <= r_max < infinity"
            )
        self.target_delay_s, self.step_per_s = target_delay_s, step_per_s
        self.window, self.r_max = window, r_max
        self._arrived, self._left, self._delay_s = 0, 0, 0.0

    def arrived(self) -> None:
        """Counts; at the end of a window, moves r and begins the next one."""
        self._arrived += 1
        if self._arrived >= self.window and self._left:
            mean_s = self._delay_s / self._left
            self.level = next_level(self.level, mean_s, self.target_delay_s, self.step_per_s, self.r_max)
            self._arrived, self._left, self._delay_s = 0, 0, 0.0

    def left(self, delay_s: float) -> None:
        """One more delay of this window."""
        self._left += 1
        self._delay_s += delay_s


@dataclass(slots=True)
class Statistics:
    """Counts over all jobs so far; a job counts once, when it first leaves the queue."""

    arrivals: int = 0
    spot: int = 0
    on_demand: int = 0
    total_delay_s: float = 0.0

    @property
    def mean_delay_s(self) -> float:
        """E[T] over all jobs that left, those sent to on-demand counting 0; 0 while none has left."""
        left = self.spot + self.on_demand
        return self.total_delay_s / left if left else 0.0

    def mean_cost(self, k: float) -> float:
        """E[C]: 1 for a job that took a spot offer, k for one that did not; 0 while none has left."""
        left = self.spot + self.on_demand
        return (self.spot + k * self.on_demand) / left if left else 0.0


Choose = Callable[[SpotJob, Sequence[Offer]], int | None]


def oldest_offer(job: SpotJob, offers: Sequence[Offer]) -> int | None:
    """The first of the standing offers that suit the job; they are given oldest first."""
    return offers[0].offer_id


@dataclass(frozen=True, slots=True)
class _Waiting:
    job: SpotJob
    since_s: float
    first: bool


class SpotQueue:
    """Jobs that wait and offers that stand. Times must not go backwards.

    `choose` picks among the standing offers that suit an arriving job (P2, say); None: none of them, the job
    is treated as if there were none. The caller calls `expire` when `next_deadline_s` is due; until then a
    lapsed offer is listed but not used.
    """

    def __init__(
        self, controller: Controller, offer_ttl_s: float = math.inf, choose: Choose = oldest_offer
    ) -> None:
        if not offer_ttl_s >= 0.0:
            raise ValueError(f"offer_ttl_s {offer_ttl_s}: 0 or more")
        self.controller, self.offer_ttl_s, self.choose = controller, offer_ttl_s, choose
        self.statistics = Statistics()
        self._interrupted: dict[str, _Waiting] = {}  # in order of interruption
        self._fresh: dict[str, _Waiting] = {}  # in order of submission
        self._offers: dict[int, Offer] = {}  # in order of offering

    def __len__(self) -> int:
        return len(self._interrupted) + len(self._fresh)

    def waiting(self) -> list[str]:
        """Keys of the waiting jobs, the next to be served first."""
        return [*self._interrupted, *self._fresh]

    def standing(self) -> list[Offer]:
        """Offers, oldest first."""
        return list(self._offers.values())

    def submit(self, job: SpotJob, now_s: float, draw: float) -> Dispatch | Queued | OnDemand:
        """A new job takes a standing offer, or joins, or goes to on-demand.

        ValueError: the key waits already; a draw outside [0, 1).
        """
        self._check_new(job)
        if not 0.0 <= draw < 1.0:
            raise ValueError(f"draw {draw}: at least 0 and less than 1")
        ahead = len(self)
        self.statistics.arrivals += 1
        answer = self._take_standing(_Waiting(job, now_s, first=True), now_s) or self._join(
            job, now_s, draw, ahead
        )
        self.controller.arrived()
        return answer

    def requeue_at_head(self, job: SpotJob, now_s: float) -> Dispatch | Queued:
        """An interrupted job comes back: behind those interrupted earlier, before all others."""
        self._check_new(job)
        returned = _Waiting(job, now_s, first=False)
        taken = self._take_standing(returned, now_s)
        if taken is not None:
            return taken
        self._interrupted[job.key] = returned
        return Queued(len(self._interrupted) - 1)

    def serve(self, now_s: float) -> Dispatch | None:
        """The next waiting job that `choose` now finds a standing offer for, if it found none when the job came."""
        for waiting in (*self._interrupted.values(), *self._fresh.values()):
            taken = self._take_standing(waiting, now_s)
            if taken is not None:
                self.cancel(waiting.job.key)
                return taken
        return None

    def offer(
        self,
        offer_id: int,
        now_s: float,
        memory_bytes: float = math.inf,
        capability: float = math.inf,
    ) -> Dispatch | Standing | Lapsed:
        """A GPU became idle: the oldest waiting job that fits takes it; else it stands, or is gone.

        ValueError: an offer of that number stands already.
        """
        if offer_id in self._offers:
            raise ValueError(f"offer {offer_id} stands already")
        made = Offer(offer_id, now_s + self.offer_ttl_s, memory_bytes, capability)
        for waiting in (*self._interrupted.values(), *self._fresh.values()):
            if made.suits(waiting.job):
                self.cancel(waiting.job.key)
                return self._dispatch(waiting, offer_id, now_s)
        if self.offer_ttl_s == 0.0:
            return Lapsed(offer_id)
        self._offers[offer_id] = made
        return Standing(offer_id, made.expires_s)

    def withdraw_offer(self, offer_id: int) -> bool:
        """The offer is gone (its host was reclaimed or is used otherwise); False if it did not stand."""
        return self._offers.pop(offer_id, None) is not None

    def cancel(self, key: str) -> bool:
        """The job waits no more and is not counted as having left; False if it did not wait."""
        return self._interrupted.pop(key, None) is not None or self._fresh.pop(key, None) is not None

    def expire(self, now_s: float) -> list[int]:
        """Remove the offers whose time is over, and name them, oldest first."""
        over = [offer.offer_id for offer in self._offers.values() if offer.expires_s <= now_s]
        for offer_id in over:
            del self._offers[offer_id]
        return over

    def next_deadline_s(self) -> float:
        """When the next offer lapses; infinity for never."""
        return min((offer.expires_s for offer in self._offers.values()), default=math.inf)

    def _check_new(self, job: SpotJob) -> None:
        if job.key in self._fresh or job.key in self._interrupted:
            raise ValueError(f"job {job.key} waits already")

    def _join(self, job: SpotJob, now_s: float, draw: float, ahead: int) -> Queued | OnDemand:
        if draw < self.controller.admit_probability(ahead):
            self._fresh[job.key] = _Waiting(job, now_s, first=True)
            return Queued(ahead)
        self.statistics.on_demand += 1
        self.controller.left(0.0)
        return OnDemand(ahead)

    def _take_standing(self, waiting: _Waiting, now_s: float) -> Dispatch | None:
        suitable = [o for o in self._offers.values() if o.expires_s > now_s and o.suits(waiting.job)]
        chosen = self.choose(waiting.job, suitable) if suitable else None
        if chosen is None:
            return None
        del self._offers[chosen]
        return self._dispatch(waiting, chosen, now_s)

    def _dispatch(self, waiting: _Waiting, offer_id: int, now_s: float) -> Dispatch:
        delay_s = now_s - waiting.since_s
        if waiting.first:
            self.statistics.spot += 1
            self.statistics.total_delay_s += delay_s
            self.controller.left(delay_s)
        return Dispatch(waiting.job.key, offer_id, delay_s, waiting.first)
