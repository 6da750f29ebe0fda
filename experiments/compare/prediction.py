"""What virtual time says of live runs that it has not seen, beside what it says of runs whose own journal it was told.

What the machinery takes is fitted to the journals of some live runs. It then predicts others: the same scenario's other seeds
would tell little, so those are of another scenario, and of other owners. Each of these is predicted twice, with the costs of the
fitted runs (held out) and with those of its own journal (fitted): the second is what `compare` shows of one run, and flatters.
Only runs count with which the machine kept up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from experiments.compare.comparison import ComparedQuantity, Played, compare
from experiments.compare.costs import MeasuredCosts, measure_costs, measure_costs_of
from experiments.inputs.scenario import Scenario
from experiments.inputs.scenario.settings import settings_of
from experiments.inputs.traces import Trace
from experiments.results.accounting import quantile
from experiments.worlds.virtual import simulate
from experiments.worlds.virtual.overheads import Overheads, costs_of

# Live runs on each side that make a judgement; with fewer, one busy second decides.
FEWEST = 3
QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class Observed:
    """A live run: which case it is one of, what was to be played (in real units), and what was."""

    case: str
    scenario: Scenario
    trace: Trace
    live: Played

    @property
    def assumed(self) -> Overheads:
        """What its scenario assumes of the machinery."""
        return costs_of(settings_of(self.scenario.played()))


@dataclass(frozen=True, slots=True)
class Predicted:
    """A held-out run's figures, live and virtual."""

    case: str
    seed: int
    fitted: tuple[ComparedQuantity, ...]  # virtual time was told its own journal's costs
    held_out: tuple[ComparedQuantity, ...]  # virtual time was told the costs of other runs


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity over all held-out runs in which it happened in both worlds.

    Differences are (virtual - live) / live. `live`, `virtual`: their quantiles of 10, 50 and 90 %.
    """

    name: str
    unit: str
    tolerance: float
    runs: int
    fitted_median: float | None
    fitted_worst: float | None
    held_out_median: float | None
    held_out_worst: float | None
    held_out_near: int
    live: tuple[float | None, ...]
    virtual: tuple[float | None, ...]

    @property
    def is_near(self) -> bool:
        """Whether the middle one of the held-out differences is within the tolerance."""
        return self.held_out_median is not None and abs(self.held_out_median) <= self.tolerance


@dataclass(frozen=True, slots=True)
class Prediction:
    """`costs` are those of the fitted runs; `reasons`: why nothing is judged."""

    costs: MeasuredCosts
    fitted_runs: int
    left_out: int  # runs with which the machine did not keep up
    runs: tuple[Predicted, ...]
    figures: tuple[Figure, ...]
    reasons: tuple[str, ...]

    @property
    def is_near(self) -> bool:
        """Whether every figure that happened is near in the held-out runs; not where nothing is judged."""
        return not self.reasons and all(figure.is_near for figure in self.figures if figure.runs)


def predict(fitting: Sequence[Observed], others: Sequence[Observed]) -> Prediction:
    """What the costs of some runs say of others; ValueError if none is there to be fitted."""
    if not fitting:
        raise ValueError("no run to fit the machinery's costs to")
    kept_up = [run for run in fitting if run.live.context.fidelity.valid]
    costs = measure_costs_of(
        [(run.live.facts, run.scenario.scale.apply(run.trace)) for run in kept_up], fitting[0].assumed
    )
    runs = tuple(_predicted(run, costs) for run in others if run.live.context.fidelity.valid)
    reasons = [
        f"the machine kept up with {count} runs {what}, of the {FEWEST} that are needed"
        for count, what in ((len(kept_up), "to fit"), (len(runs), "to predict"))
        if count < FEWEST
    ]
    left_out = len(fitting) + len(others) - len(kept_up) - len(runs)
    return Prediction(costs, len(kept_up), left_out, runs, tuple(_figures(runs)), tuple(reasons))


def _predicted(run: Observed, costs: MeasuredCosts) -> Predicted:
    own = measure_costs(run.live.facts, run.scenario.scale.apply(run.trace), run.assumed).costs
    fitted, held_out = (
        compare(run.live, _played(run, each)).quantities for each in (own, costs.told_to(run.assumed))
    )
    return Predicted(run.case, run.scenario.seed, fitted, held_out)


def _played(run: Observed, costs: Overheads) -> Played:
    virtual = simulate(run.scenario, run.trace, costs=costs, quiet=False)
    return Played(virtual.facts, virtual.context)


def _figures(runs: Sequence[Predicted]) -> Iterator[Figure]:
    for place, named in enumerate(runs[0].held_out if runs else ()):
        pairs = [(run.fitted[place], run.held_out[place]) for run in runs]
        told = [
            (one, other)
            for one, other in pairs
            if one.difference is not None and other.difference is not None
        ]
        fitted, held_out = ([pair[side].difference or 0.0 for pair in told] for side in (0, 1))
        yield Figure(
            named.name,
            named.unit,
            named.tolerance,
            len(told),
            median(fitted) if fitted else None,
            max(fitted, key=abs, default=None),
            median(held_out) if held_out else None,
            max(held_out, key=abs, default=None),
            sum(other.is_near for _, other in told),
            tuple(quantile([other.live or 0.0 for _, other in told], q) for q in QUANTILES),
            tuple(quantile([other.virtual or 0.0 for _, other in told], q) for q in QUANTILES),
        )
