"""The hazard of one host at a time, in plain numbers: what `OwnerHistory` answers for many at once is held to this."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import chi2

from controller.core.placement import hazard
from controller.core.placement.owner_history import OwnerHistory

DAY_S = 86_400.0
NOTHING = (0.0, 0.0)


@dataclass(frozen=True)
class Experience:
    """`events` departures in `exposure_s` seconds lent; fractions where experience is borrowed."""

    events: float = 0.0
    exposure_s: float = 0.0

    @property
    def rate_per_s(self) -> float:
        return self.events / self.exposure_s if self.exposure_s > 0.0 else 0.0

    @property
    def upper(self) -> float:
        return (
            float(chi2.ppf(0.95, 2.0 * self.events + 2.0) / 2.0 / self.exposure_s)
            if self.exposure_s
            else math.inf
        )


class History(OwnerHistory):
    """A history that is asked for one host at a time."""

    def __init__(
        self,
        hosts: Sequence[str],
        window_s: float,
        prior: tuple[float, float] = NOTHING,
        day_s: float = DAY_S,
        day_start_s: float = 0.0,
        *,
        short_notices: bool = True,
    ) -> None:
        super().__init__(hosts, window_s, prior, day_s, day_start_s, short_notices=short_notices)

    def of(self, host: str | None, now_s: float) -> Experience:
        """What was seen on one host in the window that ends now; of all, with the prior."""
        events, lent_s = self.seen(now_s)
        if host is None:
            return Experience(float(events[0]) + self._prior[0], float(lent_s[0]) + self._prior[1])
        column = self._column[host]
        return Experience(float(events[column]), float(lent_s[column]))

    def estimate(self, host: str, now_s: float) -> Experience:
        """A host's experience with what it borrows from the others."""
        events, lent_s = (column[hazard.FIRST_HOST :] for column in self.seen(now_s))
        campus = self.of(None, now_s)
        borrowed = float(hazard._borrowed(events, lent_s, campus.rate_per_s))
        return pooled(self.of(host, now_s), campus, borrowed)

    def profile(self, now_s: float) -> tuple[float, ...]:
        """24 factors, the campus's rate in each hour over its mean rate; all 1 while nothing was seen."""
        return self.levels(now_s)[1]


def pooled(own: Experience, whole: Experience, events: float) -> Experience:
    """One's own experience, and of the rest of `whole` the part in which `events` departures of the whole fall: all of it if
    it holds no more. The own part is never counted twice."""
    part = min(1.0, events / whole.events) if whole.events > 0.0 else 1.0
    return Experience(
        own.events + part * (whole.events - own.events),
        own.exposure_s + part * max(0.0, whole.exposure_s - own.exposure_s),
    )
