"""Curves that jobs measured by step: a picture for each job and quantity, its attempts marked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from markupsafe import Markup

from experiments.results.history import Attempt, Timed, attempts
from experiments.results.measurements import MeasuredCurve
from experiments.results.narration import CAUSES
from experiments.results.run_context import RunContext
from experiments.results.svg import Axis, Canvas, Plot

WIDTH, HEIGHT = 604.0, 300.0
MAX_CURVES: Final = 24
MAX_POINTS: Final = 1000  # of an attempt; of more, every so-and-so-many-th
LABEL_WIDTH: Final = 96.0


def curves(facts: Sequence[Timed], context: RunContext) -> list[Markup]:
    """Return pictures of the first MAX_CURVES."""
    if not context.measured:
        return []
    tries = {(attempt.job, attempt.attempt): attempt for attempt in attempts(facts)}
    return [_picture(curve, tries) for curve in context.measured[:MAX_CURVES]]


def _picture(curve: MeasuredCurve, tries: dict[tuple[str, int], Attempt]) -> Markup:
    told = sorted(curve.attempts.items())
    values = [value for _, points in told for _, value in points]
    low, high = min(values), max(values)
    room = (high - low or abs(high) or 1.0) * 0.05
    canvas = Canvas(WIDTH, HEIGHT)
    last = max(step for _, points in told for step, _ in points)
    across = Axis(0.0, float(max(1, last)), 52.0, WIDTH - 12.0)
    plot = Plot(canvas, across, Axis(low - room, high + room, HEIGHT - 30.0, 44.0))
    twice, differ = curve.repeated()
    equal = f"{differ} of them differ" if differ else "the same to the last bit"
    beside = f"steps computed twice: {twice}, {equal}" if twice else "by step"
    plot.grid(f"{curve.job}: {curve.name}", beside)
    for step in plot.x.ticks(8):
        x = plot.x(step)
        canvas.line(x, plot.y.start, x, plot.y.start + 4, class_="axis")
        canvas.text(x, plot.y.start + 16, f"{step:g}", class_="tick", text_anchor="middle")
    for (_, before), (_, after) in pairwise(told):
        left, right = plot.x(after[0][0]), plot.x(before[-1][0])
        if right > left:
            canvas.rect(left, plot.y.end, right - left, plot.y.start - plot.y.end, class_="reserve")
    free_at = 0.0
    for n, (attempt, points) in enumerate(told):
        stride = -(-len(points) // MAX_POINTS)
        drawn = [(plot.x(step), plot.y(value)) for step, value in (*points[:-1:stride], points[-1])]
        where = tries.get((curve.job, attempt))
        host = where.host if where else "a host that the journal does not know"
        how = CAUSES.get(where.how, where.how.replace("_", " ")) if where else ""
        tip = f"attempt {attempt} on {host}: steps {points[0][0]} to {points[-1][0]}" + (
            f"\n{how}" if how else ""
        )
        colour = "ab"[n % 2]
        canvas.path(drawn, fill="none", class_=f"curve thin {colour}", data_tip=tip, data_job=curve.job)
        x = plot.x(points[0][0])
        if n:
            canvas.line(x, plot.y.end, x, plot.y.start, class_="target")
        canvas.add("circle", cx=x, cy=plot.y(points[0][1]), r=3.0, class_=f"point {colour}", data_tip=tip)
        if x >= free_at:
            words = f"{attempt}: {host}" if where else str(attempt)
            at_end = x + LABEL_WIDTH > plot.x.end
            canvas.text(
                x - 4 if at_end else x + 4,
                plot.y.end + 10,
                words,
                class_="label",
                text_anchor="end" if at_end else "start",
            )
            free_at = x + LABEL_WIDTH
    return canvas.svg(f"{curve.name} of {curve.job} by step, {len(told)} attempts")
