"""A picture of a run as data, for `picture.html` to draw as SVG: shapes, and marks over its time.

Two months have a hundred thousand marks: those of one row that cover the same pixels are drawn once. `reclaimnet dashboard RUN`
replays the run at any scale of time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from experiments.results.pages import render, short
from experiments.results.report.times import RunClock

Points = Sequence[tuple[float, float]]
Row = tuple[str, float]  # looks of the marks in it, and its height on the picture


@dataclass(frozen=True)
class Axis:
    """A linear map from values to a coordinate."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value; values outside are put at the ends."""
        span = self.high - self.low
        part = (value - self.low) / span if span > 0.0 else 0.0
        part = min(1.0, max(0.0, part)) if math.isfinite(part) else 0.0
        return self.start + part * (self.end - self.start)


@dataclass(slots=True, kw_only=True)
class Shape:
    """A rectangle, a path (`d`), or a `text` at its baseline; `look` names classes of `page.css`."""

    look: str
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0
    rx: float = 0.0
    d: str = ""
    text: str = ""
    anchor: str = "start"
    tip: str = ""
    job: str = ""


def path(points: Iterable[tuple[float, float]]) -> str:
    """Return a polyline; nothing for fewer than two points."""
    placed = [f"{short(x)},{short(y)}" for x, y in points]
    return "M" + "L".join(placed) if len(placed) > 1 else ""


def steps(points: Points, until: float) -> list[tuple[float, float]]:
    """Return a staircase through (x, y): y holds until the next x, the last one until `until`."""
    result: list[tuple[float, float]] = []
    for x, y in points:
        if result:
            result.append((x, result[-1][1]))
        result.append((x, y))
    if result:
        result.append((max(until, result[-1][0]), result[-1][1]))
    return result


def outline(points: Points, pixels: float) -> Iterator[tuple[float, float]]:
    """Yield the first, the lowest, the highest and the last point of each pixel, of which a unit of x has so many."""
    for _, group in groupby(enumerate(points), key=lambda each: int(each[1][0] * pixels)):
        some = list(group)
        low, high = (pick(some, key=lambda each: each[1][1]) for pick in (min, max))
        for n in sorted({some[0][0], low[0], high[0], some[-1][0]}):
            yield points[n]


@dataclass
class Picture:
    """A picture, `width` by `height` units, with an axis of time from `left` to `right`; marks lie above all else."""

    label: str
    width: float
    height: float
    clock: RunClock
    look: str = ""
    left: float = 52.0
    right: float = 12.0
    shapes: list[Shape] = field(default_factory=list)
    marks: dict[tuple[Row, int, int], tuple[Shape, ...]] = field(default_factory=dict)

    @property
    def x(self) -> Axis:
        """The place of a second on the picture."""
        return Axis(0.0, self.clock.until_s, self.left, self.width - self.right)

    def mark(self, row: Row, start: float, end: float, *shapes: Shape) -> None:
        """Add shapes that show something at a time, or from one to another; none where such a mark is already."""
        self.marks.setdefault((row, int(start), int(end)), shapes)

    def svg(self) -> Markup:
        """Return the picture."""
        shown = [shape for shapes in self.marks.values() for shape in shapes]
        template = Path(__file__).with_name("picture.html")
        return Markup(render(template, picture=self, marks=shown))
