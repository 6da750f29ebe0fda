"""Charts over the time of a run: an axis of time, and marks on it.

Two months have a hundred thousand marks. A chart with more than `most` of them is thinned: neighbours in one row that are
nearer to one another than a few pixels become one mark, which says how many it stands for and from when until when.
`reclaimnet dashboard RUN` replays the run at any scale of time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from experiments.results.report.times import RunClock
from experiments.results.svg import Axis, Canvas, Plot, tag

MOST_MARKS = 5000  # that a chart draws one by one
NEAR_PX = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

Row = tuple[str, float]  # class, and height on the canvas


@dataclass(frozen=True, slots=True)
class Mark:
    """Elements that show something at a time, or from one to another."""

    start: float  # on the axis, in units of the canvas
    end: float
    drawn: str
    row: Row | None = None  # marks of a row may become one; None: it always stands alone
    height: float = 0.0  # of the one that stands for several
    what: str = ""  # it is, in the plural


@dataclass
class TimeCanvas(Canvas):
    """A canvas with an axis of time from `left` to `right`; marks lie above its other parts."""

    clock: RunClock = field(default_factory=lambda: RunClock(1.0))
    left: float = 52.0
    right: float = 12.0
    most: int = MOST_MARKS
    marks: list[Mark] = field(default_factory=list)

    @property
    def x(self) -> Axis:
        """The place of a second on the canvas."""
        return Axis(0.0, self.clock.until_s, self.left, self.width - self.right)

    def mark(
        self,
        start: float,
        end: float,
        *drawn: str,
        row: Row | None = None,
        height: float = 0.0,
        what: str = "",
    ) -> None:
        """Add a `Mark`; `start` and `end` in units of the canvas."""
        self.marks.append(Mark(start, end, "".join(drawn), row, height, what))

    def times(
        self, y: float, about: int, *, of_day: bool = False, grid: tuple[float, float] | None = None
    ) -> None:
        """Draw labels at height `y`: time since the beginning, or time of day; `grid`: lines from here to there."""
        for at_s, label in self.clock.hours(about) if of_day else self.clock.ticks(about):
            if grid:
                self.line(self.x(at_s), grid[0], self.x(at_s), grid[1], class_="grid")
            self.text(self.x(at_s), y, label, class_="tick", text_anchor="middle")

    def svg(self, label: str, class_: str | None = None, style: str | None = None) -> Markup:
        """Return the picture; if it was thinned, with a sentence that says so."""
        marks = self.marks if len(self.marks) <= self.most else self._thinned()
        drawn = "".join(mark.drawn for mark in marks)
        self.parts.append(f'<g class="marks">{drawn}</g>')
        picture = super().svg(label, class_, style)
        if marks is self.marks:
            return picture
        count = f"{len(self.marks):,}".replace(",", " ")
        return picture + Markup('<p class="thinned">{} marks: {}</p>').format(
            count, "those that lie side by side are drawn as one, which says how many they are."
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
        box = {"x": start, "y": row[1], "width": max(1.5, end - start), "height": some[0].height}
        return Mark(start, end, tag("rect", **box, class_=f"many {row[0]}", data_tip=tip))


@dataclass
class TimePlot(Plot):
    """A part of a canvas with the canvas's axis of time below and a value axis at the left."""

    canvas: TimeCanvas

    @classmethod
    def place(cls, canvas: TimeCanvas, low: float, high: float, top: float, bottom: float) -> TimePlot:
        """Return a plot between `top` and `bottom` of the canvas."""
        return cls(canvas, canvas.x, Axis(low, high, bottom, top))

    def times(self) -> None:
        """Draw time along the bottom."""
        self.canvas.times(self.y.start + 16, 6, grid=(self.y.start, self.y.start + 4))

    def dot(self, at_s: float, value: float, what: str, look: str, tip: str, radius: float = 3.0) -> None:
        """Draw a point with a tip; near ones of one look may become one."""
        x, y, height = self.x(at_s), self.y(value), 2 * radius
        circle = tag("circle", cx=x, cy=y, r=radius, class_=f"point {look}", data_tip=tip)
        row = (f"point {look}", round(y / height) * height - radius)
        self.canvas.mark(x, x, circle, row=row, height=height, what=what)

    def ring(
        self,
        at_s: float,
        value: float,
        look: str,
        radius: float = 5.0,
        id_: str | None = None,
        tip: str | None = None,
    ) -> None:
        """Draw a point that is never joined with others."""
        x = self.x(at_s)
        circle = tag("circle", cx=x, cy=self.y(value), r=radius, class_=look, id_=id_, data_tip=tip)
        self.canvas.mark(x, x, circle)
