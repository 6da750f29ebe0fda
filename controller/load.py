"""Times of the coordinator's decisions and answers: histograms of fixed size, for a run of any length."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from topologies.writing import write_whole

LOAD_FILE = "load.json"  # beside the journal
FIRST_S, BINS_PER_DECADE, DECADES = (1e-6, 50, 8)  # bins from a microsecond to a hundred seconds, each 4.7 % wide


@dataclass
class Durations:
    """A histogram of durations; a quantile is the upper edge of its bin, at most 4.7 % too long."""

    counts: list[int] = field(default_factory=lambda: [0] * (BINS_PER_DECADE * DECADES + 1))
    longest_s: float = 0.0

    def add(self, duration_s: float) -> None:
        """Add a duration; one shorter than FIRST_S counts as that."""
        number = int(BINS_PER_DECADE * math.log10(max(FIRST_S, duration_s) / FIRST_S))
        self.counts[min(len(self.counts) - 1, number)] += 1
        self.longest_s = max(self.longest_s, duration_s)

    def quantile_s(self, share: float) -> float:
        """Return the duration that `share` of all do not exceed; 0 of none."""
        wanted, seen = share * sum(self.counts), 0
        for number, count in enumerate(self.counts):
            seen += count
            if count and seen >= wanted:
                return min(self.longest_s, FIRST_S * 10 ** ((number + 1) / BINS_PER_DECADE))
        return 0.0

    def figures(self) -> dict[str, float]:
        """Return count, median, 99th percentile and maximum, in seconds."""
        quantiles = {"p50_s": self.quantile_s(0.5), "p99_s": self.quantile_s(0.99)}
        return {"count": sum(self.counts), **quantiles, "max_s": self.longest_s}


@dataclass
class Load:
    """Histograms of the coordinator's times.

    `decisions`: of the core, from an event to its effects; `writes`: of these into the journal. `reports`: from an
    agent's sending of a heartbeat to its receipt of the acknowledgement, which is sent once the heartbeat is decided
    and in the journal.
    """

    decisions: Durations = field(default_factory=Durations)
    writes: Durations = field(default_factory=Durations)
    reports: Durations = field(default_factory=Durations)

    def write(self, path: Path) -> None:
        """Write all figures, as JSON."""
        figures = {name: getattr(self, name).figures() for name in ("decisions", "writes", "reports")}
        write_whole(path, json.dumps(figures, indent=2) + "\n")
