"""Emergency hazard of each host at any time of a run: from its owners' law and from which hosts are lent."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.inputs.traces.reclaim_law import ReclaimLaw


class LentHazard:
    """Emergency hazard of lent hosts, read in order of time up to `at_s`: `lend` notes a host, `pieces` what lies between."""

    def __init__(self, law: ReclaimLaw) -> None:
        self.at_s = 0.0
        self._law, self._segments = law, law.segments(0.0)
        self._until_s = self._per_s = 0.0
        self._lent: set[str] = set()
        self._among = 0.0 if law.is_shared else 1.0

    def lend(self, host: str, *, lent: bool) -> None:
        """Note that its owner lends the host from now on, or does not. A host that does not follow the law changes nothing."""
        if host in self._law.factors and lent is not (host in self._lent):
            self._lent ^= {host}
            if self._law.is_shared:
                self._among += self._law.factors[host] if lent else -self._law.factors[host]
                self._among = self._among if self._lent else 0.0  # not what rounding leaves

    def factor(self, host: str) -> float:
        """Return the factor of the host, by which `pieces` are to be multiplied; 0 while it is not lent."""
        return self._law.factors[host] if host in self._lent else 0.0

    def pieces(self, to_s: float) -> Iterator[tuple[float, float, float]]:
        """Yield (from, until, emergencies per second of a lent host of factor 1) up to then; goes on as it is iterated."""
        while self.at_s < to_s:
            while self._until_s <= self.at_s:
                _, self._until_s, self._per_s = next(self._segments)
            from_s, self.at_s = self.at_s, min(to_s, self._until_s)
            yield from_s, self.at_s, self._per_s / self._among if self._among > 0.0 else 0.0
