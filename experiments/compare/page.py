"""The page of a comparison: both runs on one axis of time, every figure and every job of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

from experiments.compare.comparison import BOUNDARY, TIME_TOLERANCE, ComparedQuantity, Comparison, first_submission_s
from experiments.compare.costs import MeasuredCosts
from experiments.results.pages import render
from experiments.results.provenance import Provenance
from experiments.results.report.timeline import timeline
from experiments.worlds.played import Played
from experiments.worlds.virtual.overheads import Overheads
from topologies.units import format_rate


def page(
    name: str,
    live: Played,
    virtual: Played,
    judged: Comparison,
    usual: Comparison,
    measured: MeasuredCosts,
    assumed: Overheads,
    origin: Provenance | None = None,
) -> str:
    """Render the HTML. `judged`: with virtual time at measured costs; `usual`: at the usual ones."""
    shift_s = first_submission_s(live.facts) - first_submission_s(virtual.facts)
    shifted = [(max(0.0, at_s + shift_s), fact) for at_s, fact in virtual.facts]
    end_s = max(live.context.ended_at_s or 0.0, (virtual.context.ended_at_s or 0.0) + shift_s)
    return render(
        Path(__file__).with_name("compare.html"),
        title=f"{name}: live and virtual",
        name=name,
        boundary=BOUNDARY,
        context=live.context,
        scale=live.context.scale,
        judged=judged,
        quantities=list(zip(judged.quantities, usual.quantities, strict=True)),
        told=told,
        live=timeline(live.facts, replace(live.context, ended_at_s=end_s)),
        virtual=timeline(shifted, replace(virtual.context, ended_at_s=end_s)),
        costs=list(_costs(measured, assumed)),
        jobs=[
            (here, there, ComparedQuantity("", "s", here.completion_s, there.completion_s, TIME_TOLERANCE))
            for here, there in judged.jobs
        ],
        origin=origin,
    )


def told(value: float | None, unit: str) -> str:
    """Format a figure in its unit; a dash for None."""
    if value is None:
        return "–"
    if unit == "bytes/s":
        return format_rate(value)
    return f"{value:.2f} s" if unit == "s" else f"{value:.3f}"


def _costs(measured: MeasuredCosts, assumed: Overheads) -> Iterator[tuple[str, str, int, str]]:
    """Yield (name, measured, observations, assumed) of each cost that was looked for."""

    def span(cost: float | tuple[float, float]) -> str:
        ends = sorted(set(cost)) if isinstance(cost, tuple) else [cost]
        return " – ".join(f"{1000 * end:.1f}" for end in ends) + " ms"

    for field in fields(Overheads):
        name = field.name.removesuffix("_s")
        if name in measured.counts:
            here, usual = (span(getattr(costs, field.name)) for costs in (measured.costs, assumed))
            yield name, here, measured.counts[name], usual
