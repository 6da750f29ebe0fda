"""Drawing in SVG: text that is escaped, axes that read well, and a canvas that collects elements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby

from markupsafe import Markup

Attribute = str | float | None
Points = Sequence[tuple[float, float]]
# An axis that covers less has one tick: a thousandth of it is still no denormal number.
MIN_SPAN = 1e-300


def attributes(named: Mapping[str, Attribute]) -> str:
    """Write ` a="1" b-c="2"`: underscores become hyphens, a trailing one is dropped (`class_`), None is left out."""
    parts = []
    for name, value in named.items():
        if value is not None:
            text = short(value) if isinstance(value, float) else str(value)
            parts.append(f' {name.rstrip("_").replace("_", "-")}="{escape(text)}"')
    return "".join(parts)


def tag(name: str, text: str = "", /, **named: Attribute) -> str:
    """Write an element around plain text."""
    if not text:
        return f"<{name}{attributes(named)}/>"
    return f"<{name}{attributes(named)}>{escape(text)}</{name}>"


def spoken(label: str, inside: str) -> dict[str, Attribute]:
    """Return attributes for screen readers. `page.js` walks by arrow keys through a picture whose parts have tips."""
    has_tips = "data-tip=" in inside
    return {
        "role": "group" if has_tips else "img",
        "tabindex": "0" if has_tips else None,
        "aria-label": label,
    }


def short(value: float) -> str:
    """Write a coordinate without useless zeros; 0 for one that is not finite."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"


@dataclass
class Canvas:
    """Elements of one picture, `width` by `height` units."""

    width: float
    height: float
    parts: list[str] = field(default_factory=list)

    def add(self, name: str, text: str = "", /, **named: Attribute) -> None:
        """Add an element."""
        self.parts.append(tag(name, text, **named))

    def line(self, x1: float, y1: float, x2: float, y2: float, **named: Attribute) -> None:
        """Add a straight line."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, **named)

    def rect(self, x: float, y: float, width: float, height: float, **named: Attribute) -> None:
        """Add a rectangle; never of negative size."""
        self.add("rect", x=x, y=y, width=max(0.0, width), height=max(0.0, height), **named)

    def text(self, x: float, y: float, text: str, **named: Attribute) -> None:
        """Add text at its baseline."""
        self.add("text", text, x=x, y=y, **named)

    def path(self, points: Iterable[tuple[float, float]], **named: Attribute) -> None:
        """Add a polyline; nothing for fewer than two points."""
        placed = [f"{short(x)},{short(y)}" for x, y in points]
        if len(placed) > 1:
            self.add("path", d="M" + "L".join(placed), **named)

    def svg(self, label: str, class_: str | None = None, style: str | None = None) -> Markup:
        """Return the whole picture, as wide as its place and its `style` allow."""
        inside = "".join(self.parts)
        box = f"0 0 {short(self.width)} {short(self.height)}"
        named = {"viewBox": box, **spoken(label, inside), "class_": class_, "style": style}
        return Markup(f"<svg{attributes(named)}>{inside}</svg>")


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

    def ticks(self, about: int = 5) -> list[float]:
        """Return round values between low and high."""
        span = self.high - self.low
        if not MIN_SPAN < span < math.inf:
            return [self.low] if math.isfinite(self.low) else []
        raw = span / max(1, about)
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * power >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


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


def outline(points: Points) -> Iterator[tuple[float, float]]:
    """Yield the first, the lowest, the highest and the last point of each pixel: more cannot be seen."""
    for _, group in groupby(enumerate(points), key=lambda each: int(each[1][0])):
        some = list(group)
        low, high = (pick(some, key=lambda each: each[1][1]) for pick in (min, max))
        for n in sorted({some[0][0], low[0], high[0], some[-1][0]}):
            yield points[n]


@dataclass
class Plot:
    """A part of a canvas with a value axis at the left; several may share one canvas, one above another."""

    canvas: Canvas
    x: Axis
    y: Axis

    def grid(self, title: str, unit: str = "", ticks: int = 4) -> None:
        """Draw lines, numbers and the title above; the line at the bottom is the axis below."""
        for value in self.y.ticks(ticks):
            y = self.y(value)
            self.canvas.line(self.x.start, y, self.x.end, y, class_="grid")
            self.canvas.text(self.x.start - 6, y + 4, f"{value:g}", class_="tick", text_anchor="end")
        self.canvas.text(self.x.start - 46, self.y.end - 12, title, class_="plot-title")
        if unit:
            self.canvas.text(self.x.end, self.y.end - 12, unit, class_="tick", text_anchor="end")
        self.canvas.line(self.x.start, self.y.start, self.x.end, self.y.start, class_="axis")

    def curve(self, points: Points, **named: Attribute) -> None:
        """Draw a line through (x, value)."""
        self.canvas.path(outline([(self.x(x), self.y(y)) for x, y in points]), fill="none", **named)

    def area(self, points: Points, **named: Attribute) -> None:
        """Draw the area under a line."""
        if points:
            ends = [(self.x(points[-1][0]), self.y.start), (self.x(points[0][0]), self.y.start)]
            self.canvas.path([*outline([(self.x(x), self.y(y)) for x, y in points]), *ends], **named)

    def band(self, low: float, high: float, class_: str) -> None:
        """Draw a band of values over the whole width."""
        top, width = self.y(high), self.x.end - self.x.start
        self.canvas.rect(self.x.start, top, width, self.y(low) - top, class_=class_)

    def level(self, value: float, label: str, class_: str) -> None:
        """Draw a horizontal line with its label above the right end."""
        y = self.y(value)
        self.canvas.line(self.x.start, y, self.x.end, y, class_=class_)
        self.canvas.text(self.x.end, y - 4, label, class_=f"{class_} label", text_anchor="end")

    def nothing(self, why: str) -> None:
        """Write in the middle why there is nothing to show."""
        middle = (self.y.start + self.y.end) / 2
        self.canvas.text((self.x.start + self.x.end) / 2, middle, why, class_="none", text_anchor="middle")
