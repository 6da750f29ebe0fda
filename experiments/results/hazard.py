"""Emergency hazard of each host at any time of a run: from its owners' law and from which hosts are lent."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, takewhile
from math import inf

from controller.core.model import facts as f
from experiments.inputs.traces.reclaim_law import ReclaimLaw
from experiments.results.history import Timed, only


class EmergencyHazard:
    """Table of a run's hazard: times at which it changes, and when each host is lent."""

    def __init__(self, law: ReclaimLaw, facts: Sequence[Timed], ended_s: float) -> None:
        self._factors = law.factors
        # of hosts that follow the law: times at which each begins to be lent, ends, begins again and so on; and reclaims
        self._turns_s: dict[str, list[float]] = {host: [] for host in law.factors}
        self._reclaims_s: dict[str, list[float]] = {host: [] for host in law.factors}
        changes = [(0.0, 0.0 if law.is_shared else 1.0)]  # of the factors that share the campus's hazard
        for at_s, fact in only(facts, (f.HostJoined, f.HostReclaimed, f.HostReturned)):
            if (host := getattr(fact, "host", "")) not in law.factors:
                continue
            lends = fact.lent if isinstance(fact, f.HostJoined) else isinstance(fact, f.HostReturned)
            if isinstance(fact, f.HostReclaimed):
                self._reclaims_s[host].append(at_s)
            if lends is not (len(turns := self._turns_s[host]) % 2 == 1):
                turns.append(at_s)
                if law.is_shared:
                    changes.append((at_s, law.factors[host] if lends else -law.factors[host]))
        sums = [(changes[n][0], total) for n, total in enumerate(accumulate(each for _, each in changes))]
        segments = list(takewhile(lambda segment: segment[0] < ended_s, law.segments(0.0)))
        self._times_s = sorted({at_s for at_s, *_ in (*sums, *segments)})
        self._per_s = []  # of a lent host of factor 1, from each of these times on
        for at_s in self._times_s:
            _, _, per_s = segments[bisect_right(segments, at_s, key=lambda segment: segment[0]) - 1]
            _, among = sums[bisect_right(sums, at_s, key=lambda each: each[0]) - 1]
            self._per_s.append(per_s / among if among > 1e-9 else 0.0)  # not what rounding leaves

    def pieces(self, host: str, from_s: float, until_s: float) -> Iterator[tuple[float, float, float]]:
        """Yield (from, until, emergencies per second) of a host that follows the law; 0 while it is not lent."""
        turns, times = self._turns_s[host], self._times_s
        cuts = {from_s, until_s}
        for some in (turns, times):
            cuts.update(some[bisect_right(some, from_s) : bisect_left(some, until_s)])
        for start_s, end_s in pairwise(sorted(cuts)):
            is_lent = bisect_right(turns, start_s) % 2 == 1
            per_s = self._factors[host] * self._per_s[bisect_right(times, start_s) - 1] if is_lent else 0.0
            yield start_s, end_s, per_s

    def reclaimed_s(self, host: str, after_s: float) -> float:
        """Return the time at which the owner next takes the host back, with notice or without."""
        times = self._reclaims_s[host]
        return min(times[bisect_right(times, after_s) :], default=inf)
