"""The page: both runs above one another on one axis of time, every figure in two columns, every job as two dots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

from experiments.compare.comparison import TIME_TOLERANCE, ComparedQuantity, Comparison
from experiments.compare.costs import MeasuredCosts
from experiments.compare.journeys import first_submission_s
from experiments.results.pages import render
from experiments.results.provenance import Provenance
from experiments.results.report.timeline import timeline
from experiments.results.report.times import RunClock
from experiments.results.svg import Axis, Canvas
from experiments.worlds.played import Played
from experiments.worlds.virtual.overheads import Overheads
from topologies.units import format_rate

WIDTH, LEFT, RIGHT, ROW = 620.0, 52.0, 20.0, 26.0


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
    """The HTML. `judged` compares with virtual time at measured costs, `usual` with virtual time at the usual ones."""
    shift_s = first_submission_s(live.facts) - first_submission_s(virtual.facts)
    shifted = [(max(0.0, at_s + shift_s), fact) for at_s, fact in virtual.facts]
    end_s = max(live.context.ended_at_s or 0.0, (virtual.context.ended_at_s or 0.0) + shift_s)
    # a row for each job: when it was done in one world and in the other
    ends = [
        end for pair in judged.jobs for end in (pair[0].finished_s, pair[1].finished_s) if end is not None
    ]
    canvas = Canvas(WIDTH, ROW * len(judged.jobs) + 34.0)
    axis = Axis(0.0, max(ends, default=1.0) * 1.03, LEFT, WIDTH - RIGHT)
    for tick_s, label in RunClock(axis.high).ticks(6):
        x = axis(tick_s)
        canvas.line(x, 8.0, x, canvas.height - 24.0, class_="grid")
        canvas.text(x, canvas.height - 8.0, label, class_="tick", text_anchor="middle")
    for row, (here, there) in enumerate(judged.jobs):
        y = 22.0 + ROW * row
        canvas.text(LEFT - 8.0, y + 4.0, here.job, class_="host", text_anchor="end")
        canvas.line(axis(here.submitted_s), y, axis(here.finished_s or axis.high), y, class_="stay")
        if here.finished_s is not None:
            canvas.add("circle", cx=axis(here.finished_s), cy=y, r=6.0, class_="ring")
        if there.finished_s is not None:
            canvas.add("circle", cx=axis(there.finished_s), cy=y, r=3.2, class_="point b")
    return render(
        Path(__file__).with_name("compare.html"),
        title=f"{name}: live and virtual",
        name=name,
        context=live.context,
        judged=judged,
        quantities=list(zip(judged.quantities, usual.quantities, strict=True)),
        told=told,
        live=timeline(live.facts, replace(live.context, ended_at_s=end_s)),
        virtual=timeline(shifted, replace(virtual.context, ended_at_s=end_s)),
        dots=canvas.svg("when each job was done, live and virtual"),
        costs=list(_costs(measured, assumed)),
        jobs=[
            (here, there, ComparedQuantity("", "s", here.completion_s, there.completion_s, TIME_TOLERANCE))
            for here, there in judged.jobs
        ],
        origin=origin,
    )


def told(value: float | None, unit: str) -> str:
    """A figure in its unit; a dash for what did not happen."""
    match unit:
        case _ if value is None:
            return "–"
        case "s":
            return f"{value:.2f} s"
        case "bytes/s":
            return format_rate(value)
        case _:
            return f"{value:.3f}"


def _costs(measured: MeasuredCosts, assumed: Overheads) -> Iterator[tuple[str, str, int, str]]:
    """(name, as measured, observations, as assumed) of each cost that was looked for."""

    def span(cost: float | tuple[float, float]) -> str:
        ends = sorted(set(cost)) if isinstance(cost, tuple) else [cost]
        return " – ".join(f"{1000 * end:.1f}" for end in ends) + " ms"

    for field in fields(Overheads):
        name = field.name.removesuffix("_s")
        if name in measured.counts:
            here, usual = (span(getattr(costs, field.name)) for costs in (measured.costs, assumed))
            yield name, here, measured.counts[name], usual
