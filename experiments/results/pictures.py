"""Plots: SVG by matplotlib in one dress, sharp at any size, dark where the reader's screen is.

Drawing code gives colours for a light page. On a dark one each colour's lightness is mirrored and its hue kept: ink becomes
pale, a pale band stays close to its background, and what stood out still does. The file holds both.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from colorsys import hls_to_rgb, rgb_to_hls
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from topologies.writing import write_whole

INK: Final = "#222222"
WHITE, CARD = "#ffffff", "#181e28"  # CARD: what pages show white as, where it is dark
_DRESS: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "reclaimnet",  # one picture, one file
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


@contextmanager
def canvas(
    path: Path, rows: int, columns: int, size: tuple[float, float], title: str = "", **how: Any
) -> Iterator[tuple[Any, Any]]:
    """(figure, panels as an array of rows and columns); written to `path`, an SVG file, at the end.

    `size` is in inches of a screen's 72 points; `how` goes to matplotlib's `subplots`.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_DRESS):  # type: ignore[arg-type]
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False, **how)
        if title:
            figure.suptitle(title, fontsize=13, fontweight="bold", x=0.012, ha="left")
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    svg = written.getvalue()
    # the dark colours, for programs that know media queries; others show the light ones
    named = sorted(set(re.findall(r"(fill|stroke): (#[0-9a-f]{6})", svg)))
    dark = [f'[style*="{how}: {colour}"] {{ {how}: {_night(colour)} !important }}' for how, colour in named]
    rules = "\n".join([f"svg {{ fill: {_night(INK)} }}", *dark])  # matplotlib leaves out what is black
    style = f"svg {{ color-scheme: light dark; fill: {INK} }}\n@media (prefers-color-scheme: dark) {{\n{rules}\n}}"
    write_whole(path, svg.replace("<defs>", f"<style>\n{style}\n</style>\n <defs>", 1))


def dress(axes: Any, x: str, y: str, title: str = "", grid: str = "y") -> None:
    """Labels with units, and a light grid across the axis `grid`."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if title:
        axes.set_title(title, fontsize=10.5, loc="left", fontweight="bold")
    axes.grid(axis=grid, color="#e6e6e6", linewidth=0.7)


def _night(colour: str) -> str:
    if colour == WHITE:
        return CARD
    hue, lightness, saturation = rgb_to_hls(*(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)))
    mirrored = 0.93 - 0.805 * lightness
    if saturation > 0.2 and lightness < 0.8:  # a mark, no pale ground: mirrored it could sink into the page
        mirrored = max(0.58, mirrored)
    return "#" + "".join(f"{round(255 * part):02x}" for part in hls_to_rgb(hue, mirrored, saturation))
