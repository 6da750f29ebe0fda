"""Plots are SVG files with colours for light and dark pages."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from experiments.results.pictures import canvas, dress


def drawn(path: Path) -> str:
    with canvas(path, 1, 2, (6.0, 3.0), "A <title>") as (figure, [[left, right]]):
        left.plot([0.0, 1.0], [0.0, 1.0], color="#2b6cb0", label="a & b")
        right.bar([0, 1], [1.0, 2.0], color="white")
        dress(left, "s", "MB")
        figure.legend(loc="outside lower left")
    return path.read_text()


def test_a_plot_is_well_formed_and_drawn_twice_the_same_bytes(tmp_path: Path) -> None:
    text = drawn(tmp_path / "new" / "one.svg")
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert text == drawn(tmp_path / "two.svg")
    assert "A &lt;title&gt;" in text


def test_every_colour_of_a_plot_has_a_dark_one(tmp_path: Path) -> None:
    text = drawn(tmp_path / "one.svg")
    light, dark = text.split("prefers-color-scheme: dark", 1)
    used = set(re.findall(r'style="[^"]*?(fill|stroke): (#[0-9a-f]{6})', dark))
    assert {("stroke", "#2b6cb0"), ("fill", "#ffffff")} <= used
    assert all(f'[style*="{how}: {colour}"] {{ {how}: #' in dark for how, colour in used)
    assert '[style*="fill: #ffffff"] { fill: #181e28 !important }' in dark
    assert "svg { color-scheme: light dark; fill: #222222 }" in light
