"""Shared parts of the pictures of paper A's claims: a palette for systems, and bars with the paper's marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from experiments.claims.framework.values import Point, Value
from experiments.results.pictures import CARD, GOOD, INK, MUTED, OURS, PEER, SERIES, canvas, dress

__all__ = [
    "GOOD",
    "INK",
    "OURS",
    "PALETTE",
    "PAPER",
    "PRINTED_MARK",
    "Bar",
    "bars",
    "canvas",
    "colour",
    "dress",
    "key_of_bars",
    "line",
    "line_of_rows",
    "reach",
    "upright",
]

PAPER: Final = PEER
PALETTE: Final = {
    "slurm-pr": SERIES[7],
    "no-migration": MUTED,
    "static": SERIES[2],
    "bamboo": SERIES[3],
    "random-dst": SERIES[5],
    "no-tc-bpf": SERIES[4],
    "tv-fixed-interval": SERIES[1],
    "reclaimnet-as-printed": SERIES[6],
    "reclaimnet": OURS,
    "oracle": GOOD,
}
PRINTED_MARK: Final[dict[str, Any]] = {"color": CARD, "markeredgecolor": PAPER, "markeredgewidth": 1.6}
SHORT: Final = 100.0  # from the least to the most of a logarithmic axis


def colour(system: str) -> str:
    """Return the colour of a system, always the same; an unknown name gets a colour by its letters."""
    return PALETTE.get(system, SERIES[sum(map(ord, system)) % len(SERIES)])


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of a panel: the value measured with its interval, and the value that the paper prints; None: there is none."""

    label: str
    colour: str
    measured: float | None
    low: float | None = None
    high: float | None = None
    published: float | None = None


def bars(axes: Any, rows: Sequence[Bar], unit: str, title: str, *, log: bool = False) -> None:
    """Draw horizontal bars, the first on top; whiskers are 95 % intervals, diamonds the paper's numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for place, row in enumerate(rows):
        if row.measured is not None:
            axes.barh(place, row.measured, color=row.colour, height=0.66, zorder=2)
            axes.errorbar(
                row.measured, place, xerr=reach([row]), color=INK, linewidth=1.1, capsize=2.5, zorder=3
            )
        if row.published is not None:
            axes.plot(row.published, place, "D", markersize=6, zorder=4, clip_on=False, **PRINTED_MARK)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)  # the same in all panels, whatever rows lack
    if log:  # in plain numbers, few enough to be read: of a short axis 1, 2 and 5 of each decade
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        subs, most = ((1.0, 2.0, 5.0), None) if high < SHORT * low else ((1.0,), 4)
        axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=most))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    dress(axes, unit, "", title, grid="x")
    axes.tick_params(axis="y", length=0)


def reach(rows: Sequence[Bar | Value]) -> list[list[float]]:
    """Return the lengths of whiskers below and above each row, as matplotlib wants them; 0 where there is no interval."""
    ends = [(row.measured or 0.0, row.low, row.high) for row in rows]
    below = [0.0 if low is None else max(0.0, middle - low) for middle, low, _ in ends]
    return [below, [0.0 if high is None else max(0.0, high - middle) for middle, _, high in ends]]


def upright(axes: Any, x: float, row: Value, width: float, **more: Any) -> None:
    """Draw a vertical bar with the 95 % interval of its value."""
    axes.bar(x, row.measured, width, zorder=2, **more)
    axes.errorbar(x, row.measured, yerr=reach([row]), color=INK, linewidth=1.0, capsize=2.5, zorder=3)


def key_of_bars() -> list[Any]:
    """Return legend handles for `bars`."""
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=INK, linewidth=1.1, marker="|", label="95 % interval over the seeds"),
        Line2D([], [], marker="D", label="paper A prints", **PRINTED_MARK),
    ]


def line(
    axes: Any, points: Sequence[Point], tone: str, label: str, *, band: bool = False, **more: Any
) -> None:
    """Draw a curve of means; `band`: with the 95 % intervals along it."""
    xs = [point.x for point in points]
    axes.plot(xs, [point.mean for point in points], color=tone, label=label, **more)
    if band:
        low, high = [point.low for point in points], [point.high for point in points]
        axes.fill_between(xs, low, high, color=tone, alpha=0.2, linewidth=0, zorder=1)


def line_of_rows(
    axes: Any, xs: Sequence[float], rows: Sequence[Value], tone: str, label: str, style: str = "o-"
) -> None:
    """Draw a row at each x, with the 95 % intervals along the line."""
    axes.plot(xs, [row.measured for row in rows], style, color=tone, label=label, markersize=4, zorder=3)
    low, high = [row.low or 0.0 for row in rows], [row.high or 0.0 for row in rows]
    axes.fill_between(xs, low, high, color=tone, alpha=0.15, linewidth=0)
