"""Plots: SVG by matplotlib, in the dress of the pages and with what their script answers.

Two tools draw: a template the report's time line and map, matplotlib all plots. A time line by matplotlib has no jobs to
follow. A reader meets one style: the colours, light and dark and on paper, and the font are those of `page.css`. Bars, marked
points and named lines show numbers to pointer and arrow keys.

Drawing code gives colours for a light page, best those named here. On a dark one they are the page's dark ones; any other's
lightness is mirrored and its hue kept: a pale band stays close to its background, and what stood out still does.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from colorsys import hls_to_rgb, rgb_to_hls
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup

from experiments.results import pages
from topologies.writing import write_whole

_PAGE: Final = Path(pages.__file__).with_name("page.css").read_text("utf-8")
# the page's colours by name, of each the first that is given: what follows the dark ones is for paper
_LIGHT: dict[str, str]
_DARK: dict[str, str]
_LIGHT, _DARK = (
    dict(reversed(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part)))
    for part in _PAGE.split("prefers-color-scheme: dark", 1)
)
_NIGHT: Final = {colour: _DARK[name] for name, colour in _LIGHT.items()}
INK, MUTED, LINE, CARD = (_LIGHT[name] for name in ("ink", "muted", "line", "card"))
OURS, PEER, GOOD, BAD, AWAY = (_LIGHT[name] for name in ("a", "b", "good", "bad", "closed"))
# those of a time line's jobs; matplotlib's "C0" to "C7", too
SERIES: Final = tuple(_LIGHT[f"c{n}"] for n in range(8))
_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_FONT: Final = _PAGE.partition("font: 15px/1.5 ")[2].partition(";")[0]
NO_MARKER: Final = ("None", "none", "", " ", None)
MOST_TOLD: Final = 100  # points of one line that show their numbers; of a longer one only its name


@dataclass
class Plot:
    """A figure, its panels as an array of rows and columns, and its `svg` once it is drawn."""

    figure: Any
    panels: Any
    svg: str = ""


@contextmanager
def drawn(rows: int, columns: int, size: tuple[float, float], title: str = "", **how: Any) -> Iterator[Plot]:
    """Provide a plot to draw on; at the end its `svg` is made.

    `size` is in inches of a screen's 72 points; `how` goes to matplotlib's `subplots`.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.rcsetup import cycler

    dress_of_pages: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "reclaimnet",  # one picture, one file
        "text.parse_math": False,  # names may hold a dollar
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.prop_cycle": cycler(color=SERIES),
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.titlesize": 10.5,
        "legend.frameon": False,
        "legend.fontsize": 9,
        **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
        "grid.color": LINE,
        "grid.linewidth": 0.7,
    }
    with rc_context(dress_of_pages), warnings.catch_warnings():
        # text stays text: the browser has the letters that matplotlib's own font lacks
        warnings.filterwarnings("ignore", message="Glyph")
        figure = Figure(figsize=size, layout="constrained")
        plot = Plot(figure, figure.subplots(rows, columns, squeeze=False, **how))
        yield plot
        if title:
            figure.suptitle(title, fontsize=13, fontweight="bold", x=0.012, ha="left")
        tips = list(_tips(figure))
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
        plot.svg = _dressed(written.getvalue(), tips)


@contextmanager
def canvas(
    path: Path, rows: int, columns: int, size: tuple[float, float], title: str = "", **how: Any
) -> Iterator[tuple[Any, Any]]:
    """Provide (figure, panels) as `drawn` does; written to `path`, an SVG file, at the end."""
    with drawn(rows, columns, size, title, **how) as plot:
        yield plot.figure, plot.panels
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, plot.svg)


def dress(axes: Any, x: str, y: str, title: str = "", grid: str = "y") -> None:
    """Add labels with units, and a light grid across the axis `grid`."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if title:
        axes.set_title(title)
    axes.grid(axis=grid)


def placed(svg: str, label: str) -> Markup:
    """Return a plot as a part of a page."""
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg[svg.index("<svg") :]).replace("xlink:href", "href")
    own = re.sub(r"\W+", "-", label)  # plots of one page may have the same marks
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{own}-", svg)
    width_pt = float(re.search(r'width="([\d.]+)pt"', svg)[1])  # type: ignore[index]
    role = Markup('role="group" tabindex="0"' if "data-tip=" in svg else 'role="img"')
    head = Markup('<svg {} aria-label="{}" style="max-width: {:g}pt"').format(role, label, 1.2 * width_pt)
    return Markup(svg.replace("<svg", head, 1))


def _tips(figure: Any) -> Iterator[list[str]]:
    """Yield the tips of marks for each artist that has numbers or a name, one for all or one each; groups are named by place."""
    from matplotlib.category import StrCategoryLocator
    from matplotlib.collections import PathCollection
    from matplotlib.container import BarContainer, ErrorbarContainer
    from matplotlib.ticker import FixedLocator, FuncFormatter

    def told(axis: Any, value: float) -> str:
        if isinstance(write := axis.get_major_formatter(), FuncFormatter):
            return str(write(value))
        words, places = f"{value:.4g}", axis.get_majorticklocs()
        # names at 0, 1, 2 and so on; marks beside one another lie around them
        if isinstance(axis.get_major_locator(), FixedLocator | StrCategoryLocator) and (
            list(places) == list(range(len(places))) and -0.5 < value < len(places) - 0.5
        ):
            words = " ".join(axis.get_major_formatter().format_ticks(places)[round(value)].split())
            words = f"{value:.4g}" if words == f"{round(value)}" else words
        label = axis.get_label_text()
        return f"{label}: {words}" if label else words

    def points(axes: Any, name: str, xs: Any, ys: Any) -> list[str]:
        return [name + f"{told(axes.xaxis, x)}\n{told(axes.yaxis, y)}" for x, y in zip(xs, ys, strict=True)]

    count = 0

    def named(artist: Any, tips: list[str]) -> list[str]:
        nonlocal count
        artist.set_gid(f"tip-{count}")
        count += 1
        return tips

    axes: Any
    found: Any
    for axes in figure.axes:
        names: dict[Any, str] = {}
        for container in axes.containers:
            if isinstance(container, ErrorbarContainer):
                names |= {mark: _name(container) for mark in (container[0], *container[1])}
            if isinstance(container, BarContainer):
                name, values = _name(container), np.asarray(container.datavalues).tolist()
                for bar, value in zip(container.patches, values, strict=True):
                    x, y = bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height() / 2
                    x, y = (value, y) if container.orientation == "horizontal" else (x, value)
                    yield named(bar, points(axes, name, [x], [y]))
        for found in [*axes.get_lines(), *axes.collections]:
            marked: list[Any] = []
            if isinstance(found, PathCollection):
                marked = np.asarray(found.get_offsets()).tolist()
            elif (
                found in axes.lines and found.get_marker() not in NO_MARKER and found.get_transform() == axes.transData
            ):
                marked = found.get_xydata().tolist()
            name = names.get(found, _name(found))
            # where some lie outside, matplotlib leaves out marks and makes new ones
            if 0 < len(marked) <= MOST_TOLD and all(axes.viewLim.contains(*point) for point in marked):
                yield named(found, points(axes, name, *zip(*marked, strict=True)))
            elif name:
                yield named(found, [name.strip()])


def _name(artist: Any) -> str:
    label = str(artist.get_label())
    return "" if label.startswith("_") else f"{label}\n"


def _dressed(svg: str, tips: list[list[str]]) -> str:
    """Return Matplotlib's SVG with tips, the page's font, and both colours: in a style, for programs that know media queries."""
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    root = ElementTree.fromstring(svg)
    root.set("class", "plot")
    for metadata in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(metadata)
    for n, words in enumerate(tips):
        if (group := root.find(f".//*[@id='tip-{n}']")) is not None:
            marks = list(group.iter(f"{{{_SVG}}}use"))
            if len(words) == len(marks):
                for mark, tip in zip(marks, words, strict=True):
                    mark.set("data-tip", tip)
            elif len(words) == 1:
                group.set("data-tip", words[0])
    used = set(re.findall(r"#([\w-]+)", svg))
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        if style := element.get("style"):
            element.set("style", re.sub(r"font-family: [^;]*sans-serif(; )?", "", style))
    # not below `.plot`: a rule with an ancestor does not reach marks, which are copies of what stands in <defs>
    colours = sorted(set(re.findall(r"(fill|stroke): (#[0-9a-f]{6})", svg)))
    dark = [f'[style*="{how}: {colour}"] {{ {how}: {_night(colour)} !important }}' for how, colour in colours]
    rules = "\n".join([f"svg.plot {{ fill: {_night(INK)} }}", *dark])  # matplotlib leaves out what is black
    style = f"svg.plot {{ color-scheme: light dark; fill: {INK}; font-family: {_FONT} }}"
    style += "\n.plot * { stroke-linejoin: round; stroke-linecap: butt }"
    style += f"\n@media screen and (prefers-color-scheme: dark) {{\n{rules}\n}}"
    next(root.iter(f"{{{_SVG}}}style")).text = f"\n{style}\n"
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _night(colour: str) -> str:
    if colour in _NIGHT:
        return _NIGHT[colour]
    hue, lightness, saturation = rgb_to_hls(*(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)))
    mirrored = 0.93 - 0.805 * lightness
    if saturation > 0.2 and lightness < 0.8:  # a mark, no pale ground: mirrored it could sink into the page
        mirrored = max(0.58, mirrored)
    return "#" + "".join(f"{round(255 * part):02x}" for part in hls_to_rgb(hue, mirrored, saturation))
