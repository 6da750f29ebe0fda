"""Pictures over the time of a run, which a page zooms: marks that know where they begin and end, and an axis of time.

All of a chart's marks are drawn here, by one code, and `page.js` only moves them to where a window of time puts them. A chart
with more than `most` of them (two months have a hundred thousand) is thinned: neighbours in one row that are nearer to one
another than a pixel or a few become one mark, which says what it stands for. The marks themselves lie beside the picture,
compressed, in slices of time; a window takes the slices that it needs as soon as they are few enough to be looked at.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from markupsafe import Markup

from experiments.results.pages import packed
from experiments.results.report.times import RunClock, Tick
from experiments.results.svg import Attribute, Axis, Canvas, Plot, Points, attributes, short, tag

MOST_MARKS = 5000  # that a chart draws one by one
SLICES_SHOWN = 6  # that a window shows at most, when they are full
DECIMALS = 3  # of coordinates in slices: a window may be a thousandth of a run
POINTS_OF_A_PIECE = 100
POINT_WEIGHT = 0.15  # of a curve's point, in marks: what it takes in bytes
# a number that stands alone, or begins a path; not one with a leading zero, which would not come back as it was
_NUMBER = re.compile(r'(?:(?<![\w.:-])|(?<="M))((?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,4})?)(?![\w.:])')
NEAR_PX = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

Element = tuple[str, str, dict[str, Attribute]]  # name, text, attributes
Row = tuple[str, float]  # look, and height on the canvas


@dataclass(frozen=True, slots=True)
class Mark:
    """Something at a time, or from one to another: what of it is drawn, and with what it may be drawn as one."""

    start: float  # on the axis, in units of the canvas
    end: float
    elements: tuple[Element, ...]
    row: Row | None = None  # marks of a row may become one; None: it always stands alone
    height: float = 0.0  # of the one that stands for several
    what: str = ""  # it is, in the plural

    @property
    def look(self) -> str:
        """What it looks like; of those that stand alone, nothing."""
        return self.row[0] if self.row else ""

    def drawn(self, decimals: int = 2) -> str:
        """The elements."""
        return "".join(
            tag(
                name, text, **{k: short(v, decimals) if isinstance(v, float) else v for k, v in named.items()}
            )
            for name, text, named in self.elements
        )


@dataclass(frozen=True, slots=True)
class Curve:
    """Points from left to right, as a line, or as the area down to `base`."""

    points: Points
    named: dict[str, Attribute]
    base: float | None = None

    def through(self, points: Points, decimals: int = 2) -> str:
        """The path through some of the points."""
        if self.base is not None:
            points = [*points, (points[-1][0], self.base), (points[0][0], self.base)]
        way = "M" + "L".join(f"{short(x, decimals)},{short(y)}" for x, y in points)
        return tag("path", d=way, **self.named)

    def pieces(self) -> list[tuple[float, float, str]]:
        """(start, end, path) of each piece; neighbours share a point."""
        some = (
            self.points[n : n + POINTS_OF_A_PIECE + 1]
            for n in range(0, len(self.points) - 1, POINTS_OF_A_PIECE)
        )
        return [(each[0][0], each[-1][0], self.through(each, DECIMALS)) for each in some]

    def outline(self) -> Points:
        """The first, the lowest, the highest and the last point of each pixel."""
        kept: list[tuple[float, float]] = []
        at = 0
        while at < len(self.points):
            pixel, begun = int(self.points[at][0]), at
            while at < len(self.points) and int(self.points[at][0]) == pixel:
                at += 1
            some = range(begun, at)
            low, high = min(some, key=lambda n: self.points[n][1]), max(some, key=lambda n: self.points[n][1])
            kept += [self.points[n] for n in sorted({begun, low, high, at - 1})]
        return kept


@dataclass
class TimeCanvas(Canvas):
    """A canvas with an axis of time from `left` to `right`; `parts` lie below the marks, `above` above them."""

    clock: RunClock = field(default_factory=lambda: RunClock(1.0))
    left: float = 52.0
    right: float = 12.0
    most: int = MOST_MARKS
    marks: list[Mark] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    above: list[str] = field(default_factory=list)
    axes: list[str] = field(default_factory=list)

    @property
    def x(self) -> Axis:
        """The place of a second on the canvas."""
        return Axis(0.0, self.clock.until_s, self.left, self.width - self.right)

    def mark(
        self,
        start: float,
        end: float,
        *elements: Element,
        row: Row | None = None,
        height: float = 0.0,
        what: str = "",
    ) -> None:
        """See `Mark`; `start` and `end` in units of the canvas."""
        self.marks.append(Mark(start, end, elements, row, height, what))

    def curve(self, points: Points, base: float | None = None, **named: Attribute) -> None:
        """A line through points on the canvas, from left to right, or the area between them and `base`."""
        if len(points) > 1:
            self.curves.append(Curve(points, named, base))

    def times(
        self, y: float, about: int, *, of_day: bool = False, grid: tuple[float, float] | None = None
    ) -> None:
        """A row of labels at height `y`: time since the beginning, or time of day; `grid`: lines from here to there."""
        ticks = self.clock.hours(about) if of_day else self.clock.ticks(about)
        named: dict[str, Attribute] = {
            "class_": "times",
            "data_y": y,
            "data_about": str(about),
            "data_of_day": "1" if of_day else None,
        }
        if grid:
            named |= {"data_from": grid[0], "data_to": grid[1]}
        self.axes.append(f"<g{attributes(named)}>{''.join(self._tick(tick, y, grid) for tick in ticks)}</g>")

    def _tick(self, tick: Tick, y: float, grid: tuple[float, float] | None) -> str:
        x = self.x(tick[0])
        line = tag("line", x1=x, y1=grid[0], x2=x, y2=grid[1], class_="grid") if grid else ""
        return line + tag("text", tick[1], x=x, y=y, class_="tick", text_anchor="middle")

    def svg(self, label: str, class_: str | None = None, style: str | None = None) -> Markup:
        """The picture; if it was thinned, a sentence that says so, and all of its marks."""
        count = len(self.marks) + sum(len(curve.points) * POINT_WEIGHT for curve in self.curves)
        is_thin = count > self.most
        marks, lines = self.marks, [curve.points for curve in self.curves]
        if is_thin:
            lines = [curve.outline() for curve in self.curves]
            marks = self._thinned(self.most / 2)
        drawn = [curve.through(points) for curve, points in zip(self.curves, lines, strict=True)]
        x, width = short(self.left), short(self.width - self.left - self.right)
        clip = f"clip-{x}-{width}-{short(self.height)}"  # charts that share a name share its meaning
        inside = (
            f'<clipPath id="{clip}"><rect x="{x}" y="0" width="{width}" height="{short(self.height)}"/></clipPath>'
            f"{''.join(self.axes)}{''.join(self.parts)}"
            f'<g class="marks" clip-path="url(#{clip})">{"".join(drawn)}{"".join(m.drawn() for m in marks)}</g>'
            f"{''.join(self.above)}"
        )
        times: dict[str, Attribute] = {
            "data_until": f"{self.clock.until_s:.6g}",
            "data_day": f"{self.clock.day_s:.6g}",
            "data_day_start": f"{self.clock.day_start_s:.6g}",
            "data_start": self.left,
            "data_end": self.width - self.right,
            "data_most": str(self.most) if is_thin else None,
        }
        picture = self._svg(label, " ".join(filter(None, ("timed", class_))), style, inside, **times)
        if not is_thin:
            return Markup(picture)
        many = sum(mark.what != "" for mark in self.marks)
        said = (
            f"{many:,} marks, too many for one look".replace(",", " ")
            if many
            else "Curves with more points than pixels"
        )
        return Markup(
            f'{picture}<p class="thinned" data-said="{said}">{said}: what lies side by side is drawn as one, and says what it '
            f'stands for. A shorter time shows each.</p><script type="text/plain" class="slices">{self._slices()}</script>'
        )

    def _thinned(self, most: float) -> list[Mark]:
        """Thin to so many marks at most, if anything can be drawn as one: neighbours that are near, nearer first."""
        rows: dict[Row | None, list[Mark]] = {}
        for mark in self.marks:
            rows.setdefault(mark.row, []).append(mark)
        alone = rows.pop(None, [])
        for some in rows.values():
            some.sort(key=lambda mark: mark.start)
        for near in NEAR_PX:
            found = [one for row, some in rows.items() for one in self._together(row, some, near)]
            if len(found) + len(alone) <= most:
                break
        return found + alone

    def _together(self, row: Row | None, some: Sequence[Mark], near: float) -> list[Mark]:
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
        width = self.width - self.left - self.right
        from_s, to_s = ((x - self.left) / width * self.clock.until_s for x in (start, end))
        tip = f"{len(some)} {some[0].what}\n{self.clock.moment(from_s)} to {self.clock.moment(to_s)}"
        named: dict[str, Attribute] = {
            "x": start,
            "y": row[1],
            "width": end - start,
            "height": some[0].height,
        }
        element = ("rect", "", {**named, "class_": f"many {row[0]}", "data_tip": tip})
        return Mark(start, end, (element,))

    def _slices(self) -> str:
        """All marks in slices of time, each [start, end, how many, what `_columns` makes], as JSON, deflated, in base64.

        What is long is in slices of its own, or each would last as long as its longest mark.
        """
        looks = {look: n for n, look in enumerate(dict.fromkeys(mark.look for mark in self.marks), 1)}
        all_marks = [(start, end, 0, path) for curve in self.curves for start, end, path in curve.pieces()]
        all_marks += [(m.start, m.end, looks[m.look], m.drawn(DECIMALS)) for m in self.marks]
        by_length: dict[int, list[tuple[float, float, int, str]]] = {}
        for each in all_marks:
            by_length.setdefault(int(max(1.0, each[1] - each[0])).bit_length(), []).append(each)
        told = []
        for some in by_length.values():
            some.sort(key=lambda each: each[0])
            for n in range(0, len(some), self.most // SLICES_SHOWN):
                here = some[n : n + self.most // SLICES_SHOWN]
                start, end = here[0][0], max(each[1] for each in here)
                columns = _columns([each[2:] for each in here])
                told.append((round(start, 2), round(end, 2), len(here), columns))
        return packed(json.dumps(told, ensure_ascii=False, separators=(",", ":")))


def _columns(drawn: Sequence[tuple[int, str]]) -> list[list[object]]:
    """(layer, text) of marks as [layer, what texts share, a column for each number in which they differ ...] of those alike.

    A column is [decimals, the first, differences]: two months of transfers take a third of the bytes of their compressed text.
    """
    alike: dict[tuple[int, tuple[str, ...]], list[list[str]]] = {}
    for layer, text in drawn:
        parts = _NUMBER.split(text)
        alike.setdefault((layer, tuple(parts[::2])), []).append(parts[1::2])
    found: list[list[object]] = []
    for (layer, shared), rows in alike.items():
        columns: list[list[int]] = []
        for column in zip(*rows, strict=True):
            decimals = max(len(number.partition(".")[2]) for number in column)
            scaled = [round(float(number) * 10**decimals) for number in column]
            columns.append([decimals, *(after - before for before, after in pairwise([0, *scaled]))])
        found.append([layer, shared, *(columns or [[0] * (len(rows) + 1)])])
    return found


@dataclass
class TimePlot(Plot):
    """A part of a canvas with the canvas's axis of time below and a value axis at the left."""

    canvas: TimeCanvas

    @classmethod
    def place(cls, canvas: TimeCanvas, low: float, high: float, top: float, bottom: float) -> TimePlot:
        """Between `top` and `bottom` of the canvas."""
        return cls(canvas, canvas.x, Axis(low, high, bottom, top))

    def times(self) -> None:
        """Time along the bottom."""
        self.canvas.times(self.y.start + 16, 6, grid=(self.y.start, self.y.start + 4))

    def curve(self, points: Points, **named: Attribute) -> None:
        """A line through (s, value)."""
        self.canvas.curve([(self.x(x), self.y(y)) for x, y in points], None, fill="none", **named)

    def area(self, points: Points, **named: Attribute) -> None:
        """The area under a line."""
        self.canvas.curve([(self.x(x), self.y(y)) for x, y in points], self.y.start, **named)

    def dot(self, at_s: float, value: float, what: str, look: str, tip: str, radius: float = 3.0) -> None:
        """A point that tells more; near ones of one look may become one."""
        x, y = self.x(at_s), self.y(value)
        height = 2 * radius
        named: dict[str, Attribute] = {
            "cx": x,
            "cy": y,
            "r": radius,
            "class_": f"point {look}",
            "data_tip": tip,
        }
        row = (f"point {look}", round(y / height) * height - radius)
        self.canvas.mark(x, x, ("circle", "", named), row=row, height=height, what=what)

    def ring(self, at_s: float, value: float, look: str, radius: float = 5.0, **named: Attribute) -> None:
        """A point that is always to be seen."""
        x = self.x(at_s)
        self.canvas.mark(
            x, x, ("circle", "", {"cx": x, "cy": self.y(value), "r": radius, "class_": look, **named})
        )
