"""Drawing in SVG: text that is escaped, axes that read well, and a canvas that collects elements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from markupsafe import Markup

Attribute = str | float | None
Points = Sequence[tuple[float, float]]
# an axis that covers less has one tick: a thousandth of it is still no denormal number
LEAST_SPAN = 1e-300


def attributes(named: Mapping[str, Attribute]) -> str:
    """` a="1" b-c="2"`: underscores become hyphens, a trailing one is dropped (`class_`), None is left out."""
    parts = []
    for name, value in named.items():
        if value is not None:
            text = short(value) if isinstance(value, float) else str(value)
            parts.append(f' {name.rstrip("_").replace("_", "-")}="{escape(text)}"')
    return "".join(parts)


def tag(name: str, text: str = "", /, **named: Attribute) -> str:
    """An element around plain text."""
    if not text:
        return f"<{name}{attributes(named)}/>"
    return f"<{name}{attributes(named)}>{escape(text)}</{name}>"


def heard(label: str, inside: str) -> dict[str, Attribute]:
    """What a picture is to a screen reader: `page.js` walks with the arrow keys through one that tells more of its parts."""
    tells = "data-tip=" in inside
    return {"role": "group" if tells else "img", "tabindex": "0" if tells else None, "aria-label": label}


def short(value: float, decimals: int = 2) -> str:
    """A coordinate, without useless zeros; 0 for what is not finite."""
    return f"{value:.{decimals}f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"


@dataclass
class Canvas:
    """Elements of one picture, `width` by `height` units."""

    width: float
    height: float
    parts: list[str] = field(default_factory=list)

    def add(self, name: str, text: str = "", /, **named: Attribute) -> None:
        """One element."""
        self.parts.append(tag(name, text, **named))

    def line(self, x1: float, y1: float, x2: float, y2: float, **named: Attribute) -> None:
        """A straight line."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, **named)

    def rect(self, x: float, y: float, width: float, height: float, **named: Attribute) -> None:
        """A rectangle; never of negative size."""
        self.add("rect", x=x, y=y, width=max(0.0, width), height=max(0.0, height), **named)

    def text(self, x: float, y: float, text: str, **named: Attribute) -> None:
        """Text at its baseline."""
        self.add("text", text, x=x, y=y, **named)

    def path(self, points: Iterable[tuple[float, float]], **named: Attribute) -> None:
        """A polyline; nothing for fewer than two points."""
        placed = [f"{short(x)},{short(y)}" for x, y in points]
        if len(placed) > 1:
            self.add("path", d="M" + "L".join(placed), **named)

    def svg(self, label: str, class_: str | None = None, style: str | None = None) -> Markup:
        """The whole picture, as wide as its place and its `style` allow."""
        return Markup(self._svg(label, class_, style, "".join(self.parts)))

    def _svg(self, label: str, class_: str | None, style: str | None, inside: str, **more: Attribute) -> str:
        named = {
            "viewBox": f"0 0 {short(self.width)} {short(self.height)}",
            **heard(label, inside),
            "class_": class_,
            "style": style,
            **more,
        }
        return f"<svg{attributes(named)}>{inside}</svg>"


@dataclass(frozen=True)
class Axis:
    """A linear map from values to a coordinate."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where the value lies; values outside are put at the ends."""
        span = self.high - self.low
        part = (value - self.low) / span if span > 0.0 else 0.0
        part = min(1.0, max(0.0, part)) if math.isfinite(part) else 0.0
        return self.start + part * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values between low and high."""
        span = self.high - self.low
        if not LEAST_SPAN < span < math.inf:
            return [self.low] if math.isfinite(self.low) else []
        raw = span / max(1, about)
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * power >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def steps(points: Points, until: float) -> list[tuple[float, float]]:
    """A staircase through (x, y): y holds until the next x, the last one until `until`."""
    result: list[tuple[float, float]] = []
    for x, y in points:
        if result:
            result.append((x, result[-1][1]))
        result.append((x, y))
    if result:
        result.append((max(until, result[-1][0]), result[-1][1]))
    return result


@dataclass
class Plot:
    """A part of a canvas with a value axis at the left; several may share one canvas, one above another."""

    canvas: Canvas
    x: Axis
    y: Axis

    def grid(self, title: str, unit: str = "", ticks: int = 4) -> None:
        """Lines, numbers and the title above; the line at the bottom is the axis below."""
        for value in self.y.ticks(ticks):
            y = self.y(value)
            self.canvas.line(self.x.start, y, self.x.end, y, class_="grid")
            self.canvas.text(self.x.start - 6, y + 4, f"{value:g}", class_="tick", text_anchor="end")
        self.canvas.text(self.x.start - 46, self.y.end - 12, title, class_="plot-title")
        if unit:
            self.canvas.text(self.x.end, self.y.end - 12, unit, class_="tick", text_anchor="end")
        self.canvas.line(self.x.start, self.y.start, self.x.end, self.y.start, class_="axis")

    def level(self, value: float, label: str, class_: str) -> None:
        """A horizontal line with its label above the right end."""
        y = self.y(value)
        self.canvas.line(self.x.start, y, self.x.end, y, class_=class_)
        self.canvas.text(self.x.end, y - 4, label, class_=f"{class_} label", text_anchor="end")

    def nothing(self, why: str) -> None:
        """Says that there is nothing to show."""
        middle = (self.y.start + self.y.end) / 2
        self.canvas.text((self.x.start + self.x.end) / 2, middle, why, class_="none", text_anchor="middle")
