"""Times that checkpoints take between two hosts: the virtual world's own arithmetic, with every draw at its worst.

What counts is how late the last checkpoint before an end can begin. Its bytes are laid out backwards from the end, at
what the path gives in each epoch (`whole`). A store takes only what it lacks, and a step rewrites a share f of the
state. So a checkpoint that follows another to the same host within m steps carries min(1, m f) C. Where that converges
(f C/r below a step), an oracle sends a whole one and then smaller and smaller ones. It loses only the time of the last
(`chain`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil, inf

from experiments.worlds.oracle.future import ClassBudgets
from experiments.worlds.oracle.problem import Booking
from experiments.worlds.virtual.hosts import dirty_fraction
from testbed.enforcement import PACING_SHARE
from testbed.messages import JobSpec
from topologies.paths import Routes
from topologies.spec import DirectedLink

LEAST_GAIN = 0.02  # of a checkpoint's time: a further one that saves less is not sent
MOST_ROUNDS = 12
MOST_EPOCHS = 100  # that one checkpoint may take
ROOM = 3.0  # times a whole checkpoint's time in which a chain's rate must hold
Way = tuple[DirectedLink, ...]


@dataclass(frozen=True, slots=True)
class PlannedSending:
    """Checkpoints one after the other, complete when they should be: when each begins, the last one's time, its links."""

    begins_s: tuple[float, ...]
    lead_s: float
    bookings: tuple[Booking, ...]


@dataclass(frozen=True, slots=True)
class TransferTimes:
    """Times of checkpoints over these routes, within these budgets.

    `overhead_s`: of a checkpoint's time, all that is neither writing nor on the wire; `restart_s`: T_r, at most;
    `written_bytes_per_s`: W, for a snapshot is of everything; `allowed_s`: what the coordinator allows for one, of a payload.
    """

    routes: Routes
    budgets: ClassBudgets
    overhead_s: float
    restart_s: float
    allowed_s: Callable[[float], float]
    written_bytes_per_s: float = inf

    def sending(self, spec: JobSpec, links: Way, end_s: float, beside: Sequence[Booking] = ()) -> PlannedSending | None:
        """Return checkpoints that end at `end_s` and begin latest, at the rate that others leave; None if there is no way."""
        whole = self.whole(spec.payload_bytes, links, end_s, beside)
        if whole is None:
            return None
        rate, since_s = inf, end_s - ROOM * whole.lead_s
        for from_s, _, left in self._left(links, end_s, beside):
            rate = min(rate, left)
            if from_s <= since_s:
                break
        leads_s = self._chain(spec, rate) if rate > 0.0 else []
        total_s = sum(leads_s)
        if len(leads_s) < 2 or leads_s[-1] >= whole.lead_s or total_s > ROOM * whole.lead_s:
            return whole
        begins = accumulate(leads_s[:-1], initial=end_s - total_s)
        return PlannedSending(tuple(begins), leads_s[-1], (Booking(links, end_s - total_s, end_s, rate),))

    def whole(
        self, payload_bytes: float, links: Way, end_s: float, beside: Sequence[Booking] = ()
    ) -> PlannedSending | None:
        """Return one checkpoint of everything."""
        left, taken = payload_bytes, list[Booking]()
        spare_s = self.beside_s(payload_bytes)
        for from_s, until_s, rate in self._left(links, end_s, beside):
            needs_s = left / (rate * PACING_SHARE) if rate > 0.0 else (inf if left > 0.0 else 0.0)
            begin_s = max(from_s, until_s - needs_s - spare_s)
            if rate > 0.0:
                taken.append(Booking(links, begin_s, until_s, rate))
            lasts_s = until_s - begin_s
            spare_s -= max(0.0, lasts_s - needs_s)
            left = max(0.0, left - rate * PACING_SHARE * lasts_s) if lasts_s < needs_s else 0.0
            if begin_s > from_s or (left <= 0.0 and spare_s <= 0.0):
                return PlannedSending((begin_s,), end_s - begin_s, tuple(reversed(taken)))
            if len(taken) >= MOST_EPOCHS or from_s == -inf:
                break
        return None

    def _left(self, links: Way, end_s: float, beside: Sequence[Booking]) -> Iterator[tuple[float, float, float]]:
        """Yield (from, until, rate) of the path beside others, piece by piece into the past; the first of all has no begin."""
        others = [each for each in beside if not set(links).isdisjoint(each.links)]
        edges_s = sorted({edge_s for each in others for edge_s in (each.from_s, each.until_s)}, reverse=True)
        budgets = self.budgets.together
        for from_s, until_s, whole in budgets.backwards(links, end_s):
            inside = [edge_s for edge_s in edges_s if from_s < edge_s < until_s]
            for end, begin in pairwise((until_s, *inside, from_s)):
                there = [each for each in others if each.from_s < end and begin < each.until_s]
                left = (
                    budgets.path((link,), begin) - sum(b.rate_bytes_per_s for b in there if link in b.links)
                    for link in links
                )
                yield begin, end, max(0.0, min(left)) if there else whole

    def _chain(self, spec: JobSpec, rate_bytes_per_s: float) -> list[float]:
        """Return the seconds of each checkpoint at that rate, until the next one would not be smaller by LEAST_GAIN."""
        beside_s, pace = self.beside_s(spec.payload_bytes), rate_bytes_per_s * PACING_SHARE
        leads_s = [beside_s + spec.payload_bytes / pace]
        while len(leads_s) < MOST_ROUNDS:
            dirty = min(1.0, ceil(leads_s[-1] / spec.step_s) * dirty_fraction(spec))
            next_s = beside_s + spec.payload_bytes * dirty / pace
            if next_s > leads_s[-1] * (1.0 - LEAST_GAIN):
                break
            leads_s.append(next_s)
        return leads_s

    def beside_s(self, payload_bytes: float) -> float:
        """Return the part of a checkpoint's time that is not on the wire."""
        return self.overhead_s + payload_bytes / self.written_bytes_per_s
