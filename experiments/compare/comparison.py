"""Comparison of a live run and a virtual run of one scenario: the quantities compared, and their tolerances.

Completion times and downtimes may differ by 10 %, rates by 5 %. A downtime of half a second is mostly one process start, and
starts vary by as much. So downtimes are judged as a sum, and completion times as a mean over the jobs that ended in both runs.
A run that its own fidelity verdict rejects is not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from controller.core.model import facts as f
from experiments.results.history import Timed, tries_of
from experiments.worlds.played import Played

TIME_TOLERANCE, RATE_TOLERANCE = 0.10, 0.05
# the live run refuses a trace that has any
BOUNDARY = "Neither run has background traffic: only scenarios that are played in the virtual campus alone can have it."


@dataclass(slots=True)
class Journey:
    """A job's progress in one run. `hosts`: hosts in order of dispatch; times count from the first submission of the run."""

    job: str
    submitted_s: float
    finished_s: float | None = None
    hosts: list[str] = field(default_factory=list)
    downtime_s: float = 0.0  # of all its resumptions

    @property
    def completion_s(self) -> float | None:
        """Seconds from submission to the end; None if the run ended first."""
        return None if self.finished_s is None else self.finished_s - self.submitted_s


@dataclass(frozen=True, slots=True)
class ComparedQuantity:
    """A figure of both runs. `live` or `virtual` None: it did not happen there. `tolerance` is relative to the live one."""

    name: str
    unit: str  # "s", "bytes/s" or ""
    live: float | None
    virtual: float | None
    tolerance: float

    @property
    def difference(self) -> float | None:
        """Relative difference (virtual - live) / live; None if it cannot be computed. Two zeros do not differ."""
        if self.live is None or self.virtual is None:
            return None
        if self.live == 0.0:
            return 0.0 if self.virtual == 0.0 else None
        return (self.virtual - self.live) / self.live

    @property
    def is_near(self) -> bool:
        """True if it is within the tolerance, or absent from both runs."""
        if self.live is None and self.virtual is None:
            return True
        return self.difference is not None and abs(self.difference) <= self.tolerance


@dataclass(frozen=True, slots=True)
class Comparison:
    """Judged `quantities`, both journeys of each job, and the `reasons` to distrust the live run."""

    quantities: tuple[ComparedQuantity, ...]
    jobs: tuple[tuple[Journey, Journey], ...]
    reasons: tuple[str, ...]

    @property
    def same_ways(self) -> int:
        """Number of jobs that were dispatched to the same hosts in the same order."""
        return sum(live.hosts == virtual.hosts for live, virtual in self.jobs)

    @property
    def is_near(self) -> bool:
        """True if every quantity is within its tolerance."""
        return all(quantity.is_near for quantity in self.quantities)


def compare(live: Played, virtual: Played) -> Comparison:
    """Compare two runs by the rules of this module."""
    here, there = journeys(live.facts), journeys(virtual.facts)
    jobs = tuple((journey, there[name]) for name, journey in here.items() if name in there)
    ended = [pair for pair in jobs if pair[0].finished_s is not None and pair[1].finished_s is not None]
    sent = [_transfers(run.facts) for run in (live, virtual)]
    both = sorted(sent[0].keys() & sent[1].keys())

    completions = [_mean([each for pair in ended if (each := pair[side].completion_s) is not None]) for side in (0, 1)]
    downtimes = [sum(pair[side].downtime_s for pair in jobs) for side in (0, 1)]
    ratios = [_goodput_over_grant(run) for run in (live, virtual)]
    goodputs = [_mean([rates[key] for key in both]) for rates in sent]
    research = [_research_bytes_per_s(run) for run in (live, virtual)]
    quantities = tuple(
        ComparedQuantity(name, unit, found[0], found[1], tolerance)
        for name, unit, found, tolerance in (
            ("completion time, mean", "s", completions, TIME_TOLERANCE),
            ("downtime, sum", "s", downtimes, TIME_TOLERANCE),
            ("goodput over grant, median", "", ratios, RATE_TOLERANCE),
            ("goodput of checkpoints that both sent, mean", "bytes/s", goodputs, RATE_TOLERANCE),
            ("research flow, mean", "bytes/s", research, RATE_TOLERANCE),
        )
    )
    fidelity = live.context.fidelity
    return Comparison(quantities, jobs, () if fidelity.valid else tuple(fidelity.reasons))


def first_submission_s(facts: Iterable[Timed]) -> float:
    """Return the time of the first submission; 0 without one."""
    return next((at_s for at_s, fact in facts if isinstance(fact, f.JobSubmitted)), 0.0)


def journeys(facts: Sequence[Timed]) -> dict[str, Journey]:
    """Return all jobs, in the order of their submission."""
    begin_s, tries = first_submission_s(facts), tries_of(facts)
    found: dict[str, Journey] = {}
    for at_s, fact in facts:
        if isinstance(fact, f.JobSubmitted):
            some = tries.get(fact.job, [])
            down_s = sum(each.downtime_s or 0.0 for each in some)
            found[fact.job] = Journey(fact.job, at_s - begin_s, None, [each.host for each in some], down_s)
        elif isinstance(fact, f.JobFinished):
            found[fact.job].finished_s = at_s - begin_s
    return found


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _goodput_over_grant(played: Played) -> float | None:
    ratios = [fact.goodput_over_grant for _, fact in played.facts if isinstance(fact, f.TransferFinished)]
    known = [ratio for ratio in ratios if ratio is not None]
    return median(known) if known else None


def _transfers(facts: Iterable[Timed]) -> dict[tuple[str, int, str, str], float]:
    """Return payload over duration, of transfers that lasted long enough for a rate."""
    return {
        (fact.job, fact.sequence, fact.source, fact.destination): fact.bytes_sent / fact.duration_s
        for _, fact in facts
        if isinstance(fact, f.TransferFinished) and fact.ok and fact.goodput_over_grant is not None
    }


def _research_bytes_per_s(played: Played) -> float | None:
    """Return the mean rate of research over the windows in which no flow was cut or moved."""
    samples = [sample for sample in played.context.research if sample.link_capacity_bytes_per_s > 0.0]
    seconds = sum(sample.window_s for sample in samples)
    return sum(sample.payload_bytes for sample in samples) / seconds if seconds > 0.0 else None
