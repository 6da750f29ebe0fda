"""What virtual time says of live runs that it has not seen, beside what it says of runs whose own journal it was told.

What the machinery takes is fitted to the journals of some live runs. It then predicts others: the same scenario's other seeds
would tell little, so those are of another scenario, and of other owners. Each of these is predicted twice, with the costs of the
fitted runs (held out) and with those of its own journal (fitted): the second is what `compare` shows of one run, and flatters.
Only runs count with which the machine kept up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from experiments.compare.comparison import ComparedQuantity, compare
from experiments.compare.costs import MeasuredCosts, measure_costs, measure_costs_of
from experiments.inputs.scenario import Scenario
from experiments.inputs.scenario.settings import settings_of
from experiments.inputs.traces import Trace
from experiments.results.accounting import quantile
from experiments.worlds.played import Played
from experiments.worlds.virtual import simulate
from experiments.worlds.virtual.overheads import Overheads, costs_of

# Live runs on each side that make a judgement; with fewer, one busy second decides.
FEWEST = 3
QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """A live run: which case it is one of, what was to be played (in real units), and what was."""

    case: str
    scenario: Scenario
    trace: Trace
    live: Played

    @property
    def assumed(self) -> Overheads:
        """What its scenario assumes of the machinery."""
        return costs_of(settings_of(self.scenario.played()))

    def beside_virtual(self, costs: Overheads) -> tuple[ComparedQuantity, ...]:
        """The live run's figures beside those of virtual time with these costs."""
        virtual = simulate(self.scenario, self.trace, costs=costs, quiet=False)
        return compare(self.live, virtual).quantities


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


def predict(fitting: Sequence[ObservedRun], others: Sequence[ObservedRun]) -> Prediction:
    """What the costs of some runs say of others; ValueError if none is there to be fitted."""
    if not fitting:
        raise ValueError("no run to fit the machinery's costs to")
    kept_up = [run for run in fitting if run.live.context.fidelity.valid]
    costs = measure_costs_of(
        [(run.live.facts, run.scenario.scale.apply(run.trace)) for run in kept_up], fitting[0].assumed
    )
    runs = []
    for run in others:
        if run.live.context.fidelity.valid:
            own = measure_costs(run.live.facts, run.scenario.scale.apply(run.trace), run.assumed).costs
            fitted, held_out = run.beside_virtual(own), run.beside_virtual(costs.told_to(run.assumed))
            runs.append(Predicted(run.case, run.scenario.seed, fitted, held_out))
    reasons = [
        f"the machine kept up with {count} runs {what}, of the {FEWEST} that are needed"
        for count, what in ((len(kept_up), "to fit"), (len(runs), "to predict"))
        if count < FEWEST
    ]
    quantities = range(len(runs[0].held_out)) if runs else ()
    figures = tuple(_figure(tuple((run.fitted[i], run.held_out[i]) for run in runs)) for i in quantities)
    left_out = len(fitting) + len(others) - len(kept_up) - len(runs)
    return Prediction(costs, len(kept_up), left_out, tuple(runs), figures, tuple(reasons))


def _figure(pairs: Sequence[tuple[ComparedQuantity, ComparedQuantity]]) -> Figure:
    """One quantity over all runs, from (fitted, held out) of each."""
    named = pairs[0][1]
    told = [
        (fitted.difference, held_out.difference, held_out)
        for fitted, held_out in pairs
        if fitted.difference is not None and held_out.difference is not None
    ]
    fitted_differences = [fitted for fitted, _, _ in told]
    held_out_differences = [held_out for _, held_out, _ in told]
    return Figure(
        named.name,
        named.unit,
        named.tolerance,
        len(told),
        median(fitted_differences) if told else None,
        max(fitted_differences, key=abs, default=None),
        median(held_out_differences) if told else None,
        max(held_out_differences, key=abs, default=None),
        sum(quantity.is_near for _, _, quantity in told),
        tuple(quantile([quantity.live or 0.0 for _, _, quantity in told], q) for q in QUANTILES),
        tuple(quantile([quantity.virtual or 0.0 for _, _, quantity in told], q) for q in QUANTILES),
    )
