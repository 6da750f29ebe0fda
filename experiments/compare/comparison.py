"""A live run and a virtual run of one scenario, held to each other: what is compared, and how near is near enough.

Completion times and downtimes within 10 %, rates within 5 %. A downtime of half a second is mostly one process start, and starts
differ by as much from one to the next; so downtimes are judged as a sum, completion times as a mean over the jobs that ended in
both. Rates are judged where they are rates: the goodput of transfers over their grants, that of those checkpoints which both
runs sent, and the research flow. Nothing is judged of a live run that its own fidelity verdict rejects: on a machine that does
not keep up, both worlds are right about different campuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from controller.core.model import facts as f
from experiments.compare.journeys import Journey, journeys
from experiments.results.history import Timed
from experiments.results.run_context import RunContext

TIME_TOLERANCE, RATE_TOLERANCE = 0.10, 0.05

Transfers = dict[tuple[str, int, str, str], float]


@dataclass(frozen=True, slots=True)
class Played:
    """One run: its facts and what was measured beside them."""

    facts: Sequence[Timed]
    context: RunContext


@dataclass(frozen=True, slots=True)
class ComparedQuantity:
    """One figure of both runs. `live` or `virtual` None: it did not happen there. `tolerance` is relative to the live one."""

    name: str
    unit: str  # "s", "bytes/s" or ""
    live: float | None
    virtual: float | None
    tolerance: float

    @property
    def difference(self) -> float | None:
        """(virtual - live) / live; None if it cannot be told. Two that are both 0 do not differ."""
        if self.live is None or self.virtual is None:
            return None
        if self.live == 0.0:
            return 0.0 if self.virtual == 0.0 else None
        return (self.virtual - self.live) / self.live

    @property
    def is_near(self) -> bool:
        """Within the tolerance; so is what happened in neither."""
        if self.live is None and self.virtual is None:
            return True
        return self.difference is not None and abs(self.difference) <= self.tolerance


@dataclass(frozen=True, slots=True)
class Comparison:
    """`quantities` are judged; `jobs` are both journeys of each job; `reasons`: why the live run is not to be believed."""

    quantities: tuple[ComparedQuantity, ...]
    jobs: tuple[tuple[Journey, Journey], ...]
    reasons: tuple[str, ...]

    @property
    def same_ways(self) -> int:
        """Jobs that were sent to the same hosts in the same order."""
        return sum(live.hosts == virtual.hosts for live, virtual in self.jobs)

    @property
    def is_near(self) -> bool:
        """Whether every quantity is within its tolerance."""
        return all(quantity.is_near for quantity in self.quantities)


def compare(live: Played, virtual: Played) -> Comparison:
    """See the module."""
    here, there = journeys(live.facts), journeys(virtual.facts)
    jobs = tuple((journey, there[name]) for name, journey in here.items() if name in there)
    fidelity = live.context.fidelity
    reasons = () if fidelity.valid else tuple(fidelity.reasons)
    return Comparison((*_times(jobs), *_rates(live, virtual)), jobs, reasons)


def _times(jobs: Sequence[tuple[Journey, Journey]]) -> Iterable[ComparedQuantity]:
    ended = [
        (live.completion_s, virtual.completion_s)
        for live, virtual in jobs
        if live.completion_s is not None and virtual.completion_s is not None
    ]
    yield ComparedQuantity(
        "completion time, mean",
        "s",
        fmean(live for live, _ in ended) if ended else None,
        fmean(virtual for _, virtual in ended) if ended else None,
        TIME_TOLERANCE,
    )
    yield ComparedQuantity(
        "downtime, sum",
        "s",
        sum(live.downtime_s for live, _ in jobs),
        sum(virtual.downtime_s for _, virtual in jobs),
        TIME_TOLERANCE,
    )


def _rates(live: Played, virtual: Played) -> Iterable[ComparedQuantity]:
    yield _of_both("goodput over grant, median", "", live, virtual, _goodput_over_grant)
    here, there = _goodputs(live.facts), _goodputs(virtual.facts)
    both = sorted(here.keys() & there.keys())
    yield ComparedQuantity(
        "goodput of checkpoints that both sent, mean",
        "bytes/s",
        fmean(here[key] for key in both) if both else None,
        fmean(there[key] for key in both) if both else None,
        RATE_TOLERANCE,
    )
    yield _of_both("research flow, mean", "bytes/s", live, virtual, _research_bytes_per_s)


def _of_both(
    name: str, unit: str, live: Played, virtual: Played, figure: Callable[[Played], float | None]
) -> ComparedQuantity:
    return ComparedQuantity(name, unit, figure(live), figure(virtual), RATE_TOLERANCE)


def _goodput_over_grant(played: Played) -> float | None:
    told = [
        fact.goodput_over_grant
        for _, fact in played.facts
        if isinstance(fact, f.TransferFinished) and fact.goodput_over_grant is not None
    ]
    return median(told) if told else None


def _goodputs(facts: Iterable[Timed]) -> Transfers:
    """Payload over duration, of transfers that lasted long enough for it to be a rate."""
    return {
        (fact.job, fact.sequence, fact.source, fact.destination): fact.bytes_sent / fact.duration_s
        for _, fact in facts
        if isinstance(fact, f.TransferFinished) and fact.ok and fact.goodput_over_grant is not None
    }


def _research_bytes_per_s(played: Played) -> float | None:
    """Of all windows: what research could send beside migrations and alone."""
    samples = played.context.research
    seconds = sum(sample.window_s for sample in samples)
    return sum(sample.payload_bytes for sample in samples) / seconds if seconds > 0.0 else None
