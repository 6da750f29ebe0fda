"""The law by which owners take their hosts back: F1 of paper A.

A lent host is reclaimed with a hazard that depends on the time of day: off-peak, times a factor inside the peaks (11:30
to 13:00 and 17:30 to 20:00, six times as much). 42 % of reclaims are emergencies; the others give a notice of at least 10
seconds. Hazards are piecewise constant, so the time of the next reclaim is found exactly, from one unit-exponential draw.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from experiments.inputs.scenario.law import InverseLaw, drawn
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.fields import check, choice, flag, names, parts, quantity, whole

D = Dimension
HOUR_S = 3600.0
WEEK_DAYS = 7
SATURDAY = 5  # Monday is 0
KINDS = ("reclaim", "return")


@dataclass(frozen=True, slots=True)
class OwnerEvent:
    """The reclaim of a host by its owner, or its return.

    A reclaim with `notice_s` 0 is an emergency: the host is closed at `at_s`. With a notice the host is gone at `at_s +
    notice_s`. With `grace` that is an emergency, too, whose owner still lets a transfer finish for that short while (paper A,
    section VII-A); `Owners.grace_s` is its length if it has none. A return has neither.
    """

    # since the scenario's beginning
    at_s: float = quantity(D.DURATION)
    # a volunteer
    host: str = choice(())
    # taken back, or lent again
    kind: str = choice(KINDS, "reclaim")
    # 0: an emergency
    notice_s: float = quantity(D.DURATION, 0.0)
    # an emergency lets transfers finish: for `notice`, else the owners' `grace`
    grace: bool = flag(False)

    def __post_init__(self) -> None:
        check(self, f"event of {self.host}")
        if self.kind == "return" and (self.notice_s or self.grace):
            key = f"event of {self.host}.notice"
            raise SpecError(key, self.notice_s, "a return has no notice and no grace")

    @property
    def gone_s(self) -> float:
        """Moment from which the host is closed (a reclaim) or open (a return)."""
        return self.at_s + self.notice_s


@dataclass(frozen=True, slots=True)
class Peak:
    """A part of the day, in seconds since midnight, in which the hazard is `factor` times as high."""

    # since midnight
    start_s: float = quantity(D.DURATION)
    # since midnight
    end_s: float = quantity(D.DURATION)
    # times the off-peak hazard
    factor: float = quantity(D.NUMBER, 6.0)

    def __post_init__(self) -> None:
        check(self, "owners.peaks")
        if not self.start_s < self.end_s:
            raise SpecError("owners.peaks.end", self.end_s, f"later than the start, {self.start_s:g} s")


LUNCH = Peak(11.5 * HOUR_S, 13.0 * HOUR_S)
EVENING = Peak(17.5 * HOUR_S, 20.0 * HOUR_S)


@dataclass(frozen=True, slots=True)
class Owners:
    """Behaviour of all owners.

    The default off-peak hazard gives 0.15 emergencies an hour over a day. Paper A's numbers yield two rates, one below
    it (358 emergencies over 4 890 GPU-hours) and one above (0.99 an hour).
    """

    hazard_per_s: float = quantity(D.PER_TIME, 0.2 / HOUR_S)  # of any reclaim, off-peak
    # owners differ: a factor of each host's hazard, lognormal with this sigma, of mean 1
    host_sigma: float = quantity(D.NUMBER, 0.0, high=3.0)
    # parts of the day with a higher hazard
    peaks: tuple[Peak, ...] = parts(Peak, (LUNCH, EVENING))
    weekends: bool = flag(False)  # on Saturdays and Sundays weekend_peaks stand for peaks
    # those of Saturdays and Sundays
    weekend_peaks: tuple[Peak, ...] = parts(Peak)
    first_weekday: int = whole(0, WEEK_DAYS - 1, 0)  # of the day on which the run begins; 0: Monday
    # exactly so many reclaims, by the same profile
    count: int | None = whole(0, 1_000_000, None, optional=True)
    lent_at_start: float = quantity(D.NUMBER, 1.0, high=1.0)  # share of hosts; with `count` only
    burst: int = whole(1, 1000, 1)  # most hosts that go within half a minute; with `count` only
    burst_share: float = quantity(D.NUMBER, 0.0, high=1.0)  # of reclaims that come in bursts
    # a burst takes hosts of one building
    burst_in_building: bool = flag(False)
    day_s: float = quantity(D.DURATION, 24 * HOUR_S, above=True)  # a scaled scenario has short days
    day_start_s: float = quantity(D.DURATION, 9 * HOUR_S)  # the time of day at which the run begins
    emergency_share: float = quantity(D.NUMBER, 0.42, high=1.0)  # F1: of reclaims; they come without notice
    grace_share: float = quantity(D.NUMBER, 0.25, high=1.0)  # of emergencies; not in the paper
    # how long transfers under way may go on after an emergency with grace
    grace_s: float = quantity(D.DURATION, 10.0)
    # Definition 1: at least 10 s
    notice: InverseLaw = field(
        default=InverseLaw("exponential", 120.0, minimum=10.0, maximum=1800.0), metadata=drawn(D.DURATION)
    )
    # from a reclaim to the return
    absence: InverseLaw = field(
        default=InverseLaw("lognormal", 1.5 * HOUR_S, 0.8, 300.0, 12 * HOUR_S), metadata=drawn(D.DURATION)
    )
    # how long a presence file must be left alone until its host is lent again; live only
    idle_s: float = quantity(D.DURATION, 15 * 60.0, above=True)
    loyal: tuple[str, ...] = names()  # never reclaimed, such as ends of research flows
    # exact events; the hosts that it names follow nothing else
    script: tuple[OwnerEvent, ...] = parts(OwnerEvent)

    def __post_init__(self) -> None:
        check(self, "owners")
        if not self.day_start_s < self.day_s:
            raise SpecError("owners.day_start", self.day_start_s, f"less than a day, {self.day_s:g} s")
        _check_peaks("owners.peaks", self.peaks, self.day_s)
        _check_peaks("owners.weekend_peaks", self.weekend_peaks, self.day_s)
        object.__setattr__(self, "script", tuple(map(self.with_grace, self.script)))

    def with_grace(self, event: OwnerEvent) -> OwnerEvent:
        """Return an event whose grace has a length."""
        return replace(event, notice_s=self.grace_s) if event.grace and not event.notice_s else event

    def next_reclaim_s(self, lent_s: float, exposure: float) -> float:
        """Return when a host lent since `lent_s` has collected `exposure` (a unit-exponential draw) of hazard; inf: never."""
        cycle_s = self.day_s * (WEEK_DAYS if self.weekends else 1)
        cycle_exposure = self.exposure(0.0, cycle_s)
        if cycle_exposure <= 0.0:
            return math.inf
        while True:
            for start_s, end_s, rate in self.segments(lent_s):
                collected = (end_s - start_s) * rate
                if exposure <= collected and rate > 0.0:
                    return start_s + exposure / rate
                exposure -= collected
                if exposure > cycle_exposure:
                    break
            cycles = math.floor(exposure / cycle_exposure)  # skip whole days, or weeks
            lent_s, exposure = end_s + cycles * cycle_s, exposure - cycles * cycle_exposure

    def exposure(self, from_s: float, until_s: float) -> float:
        """Return the hazard collected by a host that is lent all that time."""
        parts = itertools.takewhile(lambda part: part[0] < until_s, self.segments(from_s))
        return math.fsum((min(end_s, until_s) - start_s) * rate for start_s, end_s, rate in parts)

    def segments(self, from_s: float) -> Iterator[tuple[float, float, float]]:
        """Yield (start, end, hazard) in run time, from a moment on, for ever."""
        day = math.floor((self.day_start_s + from_s) / self.day_s)
        midnight_s = from_s - (self.day_start_s + from_s) % self.day_s
        while True:
            parts, at_s = [], 0.0
            for peak in self._peaks_of(day):
                parts.append((at_s, peak.start_s, self.hazard_per_s))
                parts.append((peak.start_s, peak.end_s, self.hazard_per_s * peak.factor))
                at_s = peak.end_s
            for start, end, rate in (*parts, (at_s, self.day_s, self.hazard_per_s)):
                if midnight_s + end > from_s:
                    yield max(midnight_s + start, from_s), midnight_s + end, rate
            midnight_s += self.day_s
            day += 1

    def _peaks_of(self, day: int) -> tuple[Peak, ...]:
        """Return peaks of a day of the run, which begins on day 0."""
        free = self.weekends and (self.first_weekday + day) % WEEK_DAYS >= SATURDAY
        return self.weekend_peaks if free else self.peaks


def _check_peaks(key: str, peaks: tuple[Peak, ...], day_s: float) -> None:
    for before, after in itertools.zip_longest(peaks, peaks[1:]):
        limit = after.start_s if after else day_s
        if before.end_s > limit * (1.0 + 1e-9):
            raise SpecError(key, before.end_s, f"peaks in order, apart, before the day ends ({limit:g} s)")


def check_order(events: tuple[OwnerEvent, ...], key: str, away: Collection[str] = ()) -> None:
    """Raise SpecError unless events are in order of time and each host is reclaimed, returned, reclaimed, ... in turn.

    Hosts begin lent, except those that are `away`: they are returned first.
    """
    last: dict[str, OwnerEvent] = {}
    latest_s = 0.0
    for event in events:
        if event.at_s < latest_s:
            raise SpecError(key, event.at_s, f"events in order of time (the one before is at {latest_s:g} s)")
        latest_s = event.at_s
        before = last.get(event.host)
        begins = "reclaim" if event.host in away else "return"
        if event.kind == (before.kind if before else begins):
            allowed = "a reclaim" if event.kind == "return" else "a return"
            state = "begins away" if begins == "reclaim" else "hosts begin lent"
            raise SpecError(f"{key}.{event.host}", event.kind, f"{allowed} at {event.at_s:g} s: {state}")
        if before and event.at_s < before.gone_s:
            raise SpecError(f"{key}.{event.host}", event.at_s, f"a return after the notice, {before.gone_s:g} s")
        last[event.host] = event
