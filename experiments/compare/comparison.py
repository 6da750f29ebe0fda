"""A live run and a virtual run of one scenario, held to each other: what is compared, and how near is near enough.

Completion times and downtimes within 10 %, rates within 5 %. A downtime of half a second is mostly one process start, and starts
differ by as much from one to the next; so downtimes are judged as a sum, completion times as a mean over the jobs that ended in
both. Rates are judged where they are rates: the goodput of transfers over their grants, that of those checkpoints which both
runs sent, and the research flow. Nothing is judged of a live run that its own fidelity verdict rejects: on a machine that does
not keep up, both worlds are right about different campuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from controller.core.model import facts as f
from experiments.compare.journeys import Journey, journeys
from experiments.results.history import Timed
from experiments.worlds.played import Played

TIME_TOLERANCE, RATE_TOLERANCE = 0.10, 0.05

Transfers = dict[tuple[str, int, str, str], float]


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
    """Hold the two runs to each other; the module says by what rules."""
    here, there = journeys(live.facts), journeys(virtual.facts)
    jobs = tuple((journey, there[name]) for name, journey in here.items() if name in there)
    completions = [
        (one.completion_s, other.completion_s)
        for one, other in jobs
        if one.completion_s is not None and other.completion_s is not None
    ]
    sent, sent_there = _goodputs(live.facts), _goodputs(virtual.facts)
    both = sorted(sent.keys() & sent_there.keys())
    quantities = (
        ComparedQuantity(
            "completion time, mean",
            "s",
            _mean([one for one, _ in completions]),
            _mean([other for _, other in completions]),
            TIME_TOLERANCE,
        ),
        ComparedQuantity(
            "downtime, sum",
            "s",
            sum(one.downtime_s for one, _ in jobs),
            sum(other.downtime_s for _, other in jobs),
            TIME_TOLERANCE,
        ),
        ComparedQuantity(
            "goodput over grant, median",
            "",
            _goodput_over_grant(live),
            _goodput_over_grant(virtual),
            RATE_TOLERANCE,
        ),
        ComparedQuantity(
            "goodput of checkpoints that both sent, mean",
            "bytes/s",
            _mean([sent[key] for key in both]),
            _mean([sent_there[key] for key in both]),
            RATE_TOLERANCE,
        ),
        ComparedQuantity(
            "research flow, mean",
            "bytes/s",
            _research_bytes_per_s(live),
            _research_bytes_per_s(virtual),
            RATE_TOLERANCE,
        ),
    )
    fidelity = live.context.fidelity
    return Comparison(quantities, jobs, () if fidelity.valid else tuple(fidelity.reasons))


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


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
    """What research sent in all windows in which flows were not cut or moved, beside migrations and alone."""
    samples = [sample for sample in played.context.research if sample.link_capacity_bytes_per_s > 0.0]
    seconds = sum(sample.window_s for sample in samples)
    return sum(sample.payload_bytes for sample in samples) / seconds if seconds > 0.0 else None
