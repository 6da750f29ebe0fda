"""Pictures of claims: each panel is a row of a claim's `PANELS`, and one function draws them all from the values alone.

Bars stand one below the other, a bar a system; lines go over numbers that the claim gives to its groups or systems; curves are
the values' own. Whiskers and bands are 95 % intervals, diamonds the paper's numbers, dotted lines theory's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from controller.core.policies.table import SYSTEMS
from experiments.claims.framework.values import Value, Values
from experiments.results.pictures import CARD, GOOD, INK, MUTED, OURS, PEER, SERIES, canvas, dress

# colours of Table III's systems and of paper B's controllers
COLOURS: Final = {
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
    "fixed r*": MUTED,
    "Algorithm 1": PEER,
    "age": GOOD,
    "replay": OURS,
}
PRINTED_MARK: Final[dict[str, Any]] = {
    "marker": "D",
    "linestyle": "none",
    "color": CARD,
    "markeredgecolor": PEER,
    "markeredgewidth": 1.6,
    "zorder": 5,
}
THEORY_LINE: Final[dict[str, Any]] = {"color": INK, "linestyle": ":"}
SHORT: Final = 100.0  # from the least to the most of a logarithmic axis that has numbers at 2 and 5, too
COLUMNS = 3  # of a picture, at most
WIDTH_IN, LINE_IN, BAR_IN = 6.2, 4.4, 0.26
TIED: Final = ("-", "--", ":", "-.")  # styles of lines that have one colour


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of a picture: bars of a quantity, unless `xs` or `x` asks for lines or curves.

    `groups`: the rows shown, all that have the quantity where none of these has.
    """

    quantity: str
    title: str
    groups: tuple[str, ...] = ()
    # lines: the number on the x axis of a group, or of a system
    xs: Mapping[str, float] = field(default_factory=dict)
    # title of the x axis; with it and without `xs` curves are drawn
    x: str = ""
    y: str = ""  # title of the y axis; of bars it names the unit; "": the rows' unit
    log: str = ""  # axes with logarithms, of "x" and "y"
    # horizontal lines, by their names
    marks: Mapping[str, float] = field(default_factory=dict)


def draw(values: Values, title: str, panels: Sequence[Panel], path: Path) -> None:
    """Draw all panels as an SVG file."""
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    bars = max((len(_rows(values, each)) for each in panels if not each.x), default=0)
    height_in = max(LINE_IN if any(each.x for each in panels) else 0.0, 1.4 + BAR_IN * bars)
    with canvas(path, rows, columns, (WIDTH_IN * columns, height_in * rows), title) as (_, found):
        for axes, panel in zip(found.flat, panels, strict=False):
            if panel.x:
                _lines(axes, values, panel)
            else:
                _bars(axes, values, panel)
        for axes in found.flat[len(panels) :]:
            axes.remove()


def label(system: str) -> str:
    """Return the name that Table III gives a system; its own if it is none of the paper's."""
    return SYSTEMS.get(system, "Oracle (B6)" if system == "oracle" else system)


def colour(system: str) -> str:
    """Return the colour of a system, always the same; an unknown name gets a colour by its letters."""
    known = system.partition(" from ")[0]
    return COLOURS.get(known, SERIES[sum(map(ord, system)) % len(SERIES)])


def _rows(values: Values, panel: Panel) -> list[Value]:
    """Return the panel's rows, without comparisons of two systems."""
    of = [row for row in values.rows if row.quantity == panel.quantity and " - " not in row.system]
    return [row for row in of if row.group in panel.groups] or of


def _bars(axes: Any, values: Values, panel: Panel) -> None:
    rows = _rows(values, panel)
    is_one = len({row.group for row in rows}) == 1
    for place, row in enumerate(rows):
        axes.barh(place, row.measured, color=colour(row.system), height=0.66, zorder=2)
        whiskers = [[below] for below in _reach(row)]
        axes.errorbar(row.measured, place, xerr=whiskers, color=INK, linewidth=1.1, capsize=2.5, zorder=3)
        if row.published is not None:
            axes.plot(row.published, place, markersize=6, clip_on=False, **PRINTED_MARK)
    names = [label(row.system) if is_one else f"{row.group}: {label(row.system)}" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    if panel.log and any(row.measured > 0.0 for row in rows):
        _make_log(axes, "x")
    dress(axes, panel.y or next((row.unit for row in rows), ""), "", panel.title, grid="x")


def _reach(row: Value) -> tuple[float, float]:
    """Return the lengths of the whiskers below and above, 0 where there is no interval."""
    low, high = (row.measured if end is None else end for end in (row.low, row.high))
    return max(0.0, row.measured - low), max(0.0, high - row.measured)


def _lines(axes: Any, values: Values, panel: Panel) -> None:
    drawn: list[str] = []
    for name, points in _series(values, panel):
        tone, (xs, means, lows, highs) = colour(name), zip(*points, strict=True)
        look = TIED[drawn.count(tone) % len(TIED)] + ("o" if panel.xs else "")
        axes.plot(xs, means, look, color=tone, label=label(name), markersize=4, zorder=3)
        axes.fill_between(xs, lows, highs, color=tone, alpha=0.15, linewidth=0)
        drawn.append(tone)
    for words, of, dressed in (("printed", "published", PRINTED_MARK), ("theory", "exact", THEORY_LINE)):
        told = [(x, getattr(row, of)) for x, _, row in _placed(values, panel)]
        if known := sorted({(x, number) for x, number in told if number is not None}):
            axes.plot(*zip(*known, strict=True), label=words, **dressed)
    for words, level in panel.marks.items():
        axes.axhline(level, color=INK, linewidth=0.9, linestyle=(0, (1, 1.5)), label=words, zorder=2)
    for axis in panel.log:
        _make_log(axes, axis)
    dress(axes, panel.x, panel.y or panel.quantity, panel.title)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)


def _make_log(axes: Any, which: str) -> None:
    """Make an axis logarithmic, with plain numbers at 1, 2 and 5 of each decade."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < SHORT * low else (1.0,)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def _series(values: Values, panel: Panel) -> Iterator[tuple[str, list[tuple[float, float, float, float]]]]:
    """Yield (name, points of x, mean, low, high) of each line."""
    found: dict[str, list[tuple[float, float, float, float]]] = {}
    for x, name, row in _placed(values, panel):
        below, above = _reach(row)
        found.setdefault(name, []).append((x, row.measured, row.measured - below, row.measured + above))
    for point in () if panel.xs else values.curves:
        if point.quantity == panel.quantity and (not panel.groups or point.group in panel.groups):
            low, high = (point.mean if end is None else end for end in (point.low, point.high))
            found.setdefault(point.system, []).append((point.x, point.mean, low, high))
    yield from ((name, sorted(points)) for name, points in found.items())


def _placed(values: Values, panel: Panel) -> Iterator[tuple[float, str, Value]]:
    """Yield (x, name of its line, row) of each row that has an x by its group or its system."""
    for row in _rows(values, panel) if panel.xs else ():
        if row.group in panel.xs:
            yield panel.xs[row.group], row.system, row
        elif row.system in panel.xs:
            yield panel.xs[row.system], row.group, row
