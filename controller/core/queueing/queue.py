"""The spot queue: which jobs wait for a volunteered GPU and which go to on-demand at once (paper B).

A job that finds n jobs waiting joins if n < N, and with probability p if n = N. Otherwise it leaves for an on-demand
host at cost k. A spot offer takes the oldest waiting job that fits, at cost 1. With Poisson jobs and Poisson offers
this is optimal over all policies that keep the mean delay of all jobs at delta (Theorem 4). r = N + p is one number,
and the mean delay grows with it. The arrival laws are unknown, so a `Controller` learns r (the package
`controllers`).

Where offers are not Poisson, the age of the gap, the time since the last offer, shows when the next may come. A
controller may use it twice: to let a job join or not, and to send away the jobs that wait when the gap reaches an age
(`renege`). The age counts every offer, also one that finds no job; before the first it counts from the first event.

Delay is from submission to first dispatch, or to leaving for on-demand. An interrupted job goes back to the
head: it is not an arrival, its delay has been counted, and it never leaves. Jobs that were interrupted wait in
the order of their interruption, before all others, and count in n.

Offers live for `offer_ttl_s`. 0 is the paper's model: used at once or gone. Infinity is a patient campus: the offer
stands until its owner withdraws it, and a job that arrives and fits takes it without waiting, whatever r is.

A job of n GPUs takes an offer if n GPUs are free behind it: that one and others of its host. An offer with fewer goes
to the next job that fits. So a job of many GPUs may wait longer than those behind it.

Randomness and time are arguments: `draw` in [0, 1) decides the admission with probability p.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.core.queueing.controllers.controller import Controller
from controller.core.queueing.replay import Statistics


@dataclass(frozen=True, slots=True)
class SpotJob:
    """Requirements of a job on a GPU."""

    key: str
    memory_bytes: float = 0.0
    min_capability: float = 0.0
    gpus: int = 1  # of one host


@dataclass(frozen=True, slots=True)
class Offer:
    """A GPU that stands ready until `expires_s` (that moment excluded)."""

    offer_id: int
    expires_s: float = math.inf
    memory_bytes: float = math.inf
    capability: float = math.inf
    made_s: float = 0.0
    host: str = ""  # where it is

    def suits(self, job: SpotJob) -> bool:
        """Return whether the job can run on it."""
        return job.memory_bytes <= self.memory_bytes and job.min_capability <= self.capability


@dataclass(frozen=True, slots=True)
class Queued:
    """A job that waits; `ahead` are before it."""

    ahead: int


@dataclass(frozen=True, slots=True)
class OnDemand:
    """A job that goes to an on-demand host at once, at cost k; `ahead` would have been before it."""

    ahead: int


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A job that takes an offer, after waiting `delay_s`. `first`: never before, so it was counted now."""

    job: str
    offer_id: int
    delay_s: float
    first: bool
    host: str = ""  # of the offer


@dataclass(frozen=True, slots=True)
class Standing:
    """An offer that no job fits; it stands until `expires_s`."""

    offer_id: int
    expires_s: float


@dataclass(frozen=True, slots=True)
class Lapsed:
    """An offer that no job fits, and that does not wait."""

    offer_id: int


@dataclass(frozen=True, slots=True)
class Reneged:
    """A job that waited `delay_s` and now leaves for on-demand, at cost k: by the age of the gap, or its longest wait."""

    job: str
    delay_s: float


Choose = Callable[[SpotJob, Sequence[Offer]], int | None]


@dataclass(frozen=True, slots=True)
class _Waiting:
    job: SpotJob
    since_s: float
    first: bool


class SpotQueue:
    """Jobs that wait and offers that stand. Times must not go backwards.

    `choose` picks among the standing offers that suit an arriving job (by P2, for example); None: none of them, the
    job is treated as if there were none. `gpus_behind` counts the GPUs that a job which takes an offer can have now.
    The caller calls `expire` when `next_deadline_s` is due; until then a lapsed offer is listed but not used.
    """

    def __init__(
        self,
        controller: Controller,
        offer_ttl_s: float = math.inf,
        choose: Choose = lambda job, offers: offers[0].offer_id,  # the oldest
        gpus_behind: Callable[[Offer], int] = lambda offer: 1,
    ) -> None:
        if not offer_ttl_s >= 0.0:
            raise ValueError(f"offer_ttl_s {offer_ttl_s}: 0 or more")
        self.controller, self.offer_ttl_s, self.choose = controller, offer_ttl_s, choose
        self._gpus_behind = gpus_behind
        self.statistics = Statistics()
        self._interrupted: dict[str, _Waiting] = {}  # in order of interruption
        self._fresh: dict[str, _Waiting] = {}  # in order of submission
        self._offers: dict[int, Offer] = {}  # in order of offering
        self._at = defaultdict[str, dict[int, None]](dict)  # the same by host
        self._gap_began_s: float | None = None  # the last offer; until there was one, the first event

    def __len__(self) -> int:
        return len(self._interrupted) + len(self._fresh)

    def waiting(self) -> list[str]:
        """Return the keys of the waiting jobs, the next to be served first."""
        return [*self._interrupted, *self._fresh]

    def standing_at(self, host: str) -> list[int]:
        """Return the numbers of the offers of a host, oldest first."""
        return list(self._at.get(host, ()))

    def standing(self) -> list[Offer]:
        """Return the offers, oldest first."""
        return list(self._offers.values())

    def submit(self, job: SpotJob, now_s: float, draw: float) -> Dispatch | Queued | OnDemand:
        """Take a new job: it gets a standing offer, or joins, or goes to on-demand.

        ValueError: the key waits already; a draw outside [0, 1).
        """
        self._check_new(job)
        if not 0.0 <= draw < 1.0:
            raise ValueError(f"draw {draw}: at least 0 and less than 1")
        ahead = len(self)
        self.statistics.arrivals += 1
        waiting = _Waiting(job, now_s, first=True)
        answer: Dispatch | Queued | OnDemand | None = self._take_standing(waiting, now_s)
        if answer is None:
            if self._gap_began_s is None:
                self._gap_began_s = now_s
            if draw < self.controller.rule.admit_probability(ahead, now_s - self._gap_began_s):
                self._fresh[job.key], answer = waiting, Queued(ahead)
            else:
                self.statistics.on_demand += 1
                self.controller.left(0.0)
                answer = OnDemand(ahead)
        self.controller.arrived(now_s)
        return answer

    def requeue_at_head(self, job: SpotJob, now_s: float) -> Dispatch | Queued:
        """Take an interrupted job back: behind those interrupted earlier, before all others."""
        self._check_new(job)
        returned = _Waiting(job, now_s, first=False)
        taken = self._take_standing(returned, now_s)
        if taken is not None:
            return taken
        self._interrupted[job.key] = returned
        return Queued(len(self._interrupted) - 1)

    def serve(self, now_s: float) -> Dispatch | None:
        """Serve the next waiting job for which `choose` now finds a standing offer, if it found none when the job came."""
        for waiting in (*self._interrupted.values(), *self._fresh.values()):
            taken = self._take_standing(waiting, now_s)
            if taken is not None:
                self.cancel(waiting.job.key)
                return taken
        return None

    def offer(
        self, offer_id: int, now_s: float, memory_bytes: float = math.inf, capability: float = math.inf, host: str = ""
    ) -> Dispatch | Standing | Lapsed:
        """Offer a GPU that became idle: the oldest waiting job that fits takes it; else it stands, or is gone.

        ValueError: an offer of that number stands already.
        """
        if offer_id in self._offers:
            raise ValueError(f"offer {offer_id} stands already")
        self._gap_began_s = now_s
        self.controller.spot(now_s)
        made = Offer(offer_id, now_s + self.offer_ttl_s, memory_bytes, capability, now_s, host)
        for waiting in (*self._interrupted.values(), *self._fresh.values()):
            if self._fits(waiting.job, made):
                self.cancel(waiting.job.key)
                return self._dispatch(waiting, made, now_s)
        if self.offer_ttl_s == 0.0:
            return Lapsed(offer_id)
        self._offers[offer_id], self._at[host][offer_id] = made, None
        return Standing(offer_id, made.expires_s)

    def withdraw_offer(self, offer_id: int) -> bool:
        """Withdraw an offer (its host was reclaimed or is used otherwise); False if it did not stand."""
        withdrawn = self._take(offer_id) if offer_id in self._offers else None
        if withdrawn is not None:
            self.controller.lost(withdrawn.made_s)
        return withdrawn is not None

    def _take(self, offer_id: int) -> Offer:
        offer = self._offers.pop(offer_id)
        del self._at[offer.host][offer_id]
        return offer

    def cancel(self, key: str) -> bool:
        """Remove a waiting job, without counting it as having left; False if it did not wait."""
        waiting = self._interrupted.pop(key, None) or self._fresh.pop(key, None)
        return waiting is not None

    def expire(self, now_s: float) -> list[Offer]:
        """Remove and return the offers whose time is over, oldest first."""
        over = [offer for offer in self._offers.values() if offer.expires_s <= now_s]
        for offer in over:
            self._take(offer.offer_id)
        return over

    def renege(self, now_s: float) -> list[Reneged]:
        """Remove and return the jobs whose time to leave for on-demand has come, oldest first.

        The delay counted is the actual wait, even if this is called late. A job that joined after the gap reached the
        age of leaving waits for the next offer. Interrupted jobs never leave.
        """
        due = [waiting for waiting in self._fresh.values() if self._leaves_s(waiting) <= now_s]
        return [self._leave(waiting, now_s) for waiting in due]

    def _leave(self, waiting: _Waiting, now_s: float) -> Reneged:
        self.cancel(waiting.job.key)
        delay_s = now_s - waiting.since_s
        self.statistics.on_demand += 1
        self.statistics.total_delay_s += delay_s
        self.controller.left(delay_s)
        return Reneged(waiting.job.key, delay_s)

    def next_deadline_s(self) -> float:
        """Return the time at which the next offer lapses, or the next job leaves (`expire`, `renege`); infinity for never."""
        # all offers stand equally long
        lapses_s = next(iter(self._offers.values())).expires_s if self._offers else math.inf
        rule = self.controller.rule
        if min(rule.leave_at_age_s, rule.longest_wait_s) == math.inf:  # whatever the length of the queue
            return lapses_s
        return min(lapses_s, min(map(self._leaves_s, self._fresh.values()), default=math.inf))

    def _check_new(self, job: SpotJob) -> None:
        if job.key in self._fresh or job.key in self._interrupted:
            raise ValueError(f"job {job.key} waits already")

    def _leaves_s(self, waiting: _Waiting) -> float:
        """Return when the job goes to on-demand if no offer comes."""
        outgrown_s = (self._gap_began_s or 0.0) + self.controller.rule.leave_at_age_s
        return min(
            waiting.since_s + self.controller.rule.longest_wait_s,
            outgrown_s if waiting.since_s < outgrown_s else math.inf,
        )

    def _fits(self, job: SpotJob, offer: Offer) -> bool:
        return offer.suits(job) and (job.gpus == 1 or self._gpus_behind(offer) >= job.gpus)

    def _take_standing(self, waiting: _Waiting, now_s: float) -> Dispatch | None:
        suitable = [o for o in self._offers.values() if o.expires_s > now_s and self._fits(waiting.job, o)]
        chosen = self.choose(waiting.job, suitable) if suitable else None
        if chosen is None:
            return None
        return self._dispatch(waiting, self._take(chosen), now_s)

    def _dispatch(self, waiting: _Waiting, offer: Offer, now_s: float) -> Dispatch:
        delay_s = now_s - waiting.since_s
        if waiting.first:
            self.statistics.spot += 1
            self.statistics.total_delay_s += delay_s
            self.controller.left(delay_s)
        else:
            self.controller.lost(offer.made_s)
        return Dispatch(waiting.job.key, offer.offer_id, delay_s, waiting.first, offer.host)
