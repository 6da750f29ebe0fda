"""A picture of a run as data, for `picture.html` to draw as SVG: shapes, and marks over its time.

Two months have a hundred thousand marks. A picture with more than `most` of them is thinned: neighbours in one row that
are nearer to one another than a few pixels become one mark. It shows how many it stands for, and from when until when.
`reclaimnet dashboard RUN` replays the run at any scale of time.
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
MOST_MARKS = 5000  # that a picture draws one by one
NEAR_PX = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


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


@dataclass(frozen=True, slots=True)
class Mark:
    """Shapes that show something at a time, or from one to another."""

    start: float  # on the axis, in units of the picture
    end: float
    shapes: tuple[Shape, ...]
    row: Row | None = None  # marks of a row may become one; None: it always stands alone
    height: float = 0.0  # of the one that stands for several
    what: str = ""  # it is, in the plural


@dataclass
class Picture:
    """A picture, `width` by `height` units, with an axis of time from `left` to `right`; marks lie above all else."""

    label: str
    width: float
    height: float
    clock: RunClock = field(default_factory=lambda: RunClock(1.0))
    look: str = ""
    left: float = 52.0
    right: float = 12.0
    most: int = MOST_MARKS
    shapes: list[Shape] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    @property
    def x(self) -> Axis:
        """The place of a second on the picture."""
        return Axis(0.0, self.clock.until_s, self.left, self.width - self.right)

    def mark(
        self,
        start: float,
        end: float,
        *shapes: Shape,
        row: Row | None = None,
        height: float = 0.0,
        what: str = "",
    ) -> None:
        """Add a `Mark`."""
        self.marks.append(Mark(start, end, shapes, row, height, what))

    def svg(self) -> Markup:
        """Return the picture; if it was thinned, with a sentence about that."""
        marks = self.marks if len(self.marks) <= self.most else self._thinned()
        shown = [shape for mark in marks for shape in mark.shapes]
        template = Path(__file__).with_name("picture.html")
        return Markup(render(template, picture=self, marks=shown, thinned=marks is not self.marks))

    @property
    def has_tips(self) -> bool:
        """True if `page.js` has parts to walk through by arrow keys."""
        return any(shape.tip for mark in self.marks for shape in mark.shapes) or any(
            s.tip for s in self.shapes
        )

    def _thinned(self) -> list[Mark]:
        """Join near marks of each row, nearer ones first, until half of `most` are left."""
        rows: dict[Row | None, list[Mark]] = {}
        for mark in self.marks:
            rows.setdefault(mark.row, []).append(mark)
        alone = rows.pop(None, [])
        for some in rows.values():
            some.sort(key=lambda mark: mark.start)
        for near in NEAR_PX:
            found = [one for row, some in rows.items() for one in self._joined(row, some, near)]
            if len(found) + len(alone) <= self.most / 2:
                break
        return found + alone

    def _joined(self, row: Row | None, some: Sequence[Mark], near: float) -> list[Mark]:
        groups: list[list[Mark]] = []
        reached = -math.inf
        for mark in some:
            is_small = mark.end - mark.start < 2 * near
            if is_small and mark.start - reached < near:
                groups[-1].append(mark)
            else:
                groups.append([mark])
            reached = mark.end if is_small else -math.inf
        return [of[0] if len(of) == 1 else self._one_for(row, of) for of in groups]

    def _one_for(self, row: Row | None, some: Sequence[Mark]) -> Mark:
        assert row is not None
        start, end = some[0].start, max(mark.end for mark in some)
        from_s, to_s = ((x - self.left) / (self.x.end - self.left) * self.clock.until_s for x in (start, end))
        tip = f"{len(some)} {some[0].what}\n{self.clock.moment(from_s)} to {self.clock.moment(to_s)}"
        width, height = max(1.5, end - start), some[0].height
        many = Shape(look=f"many {row[0]}", x=start, y=row[1], width=width, height=height, tip=tip)
        return Mark(start, end, (many,))
