"""Plots are SVG files with colours for light and dark pages."""

import re
from pathlib import Path
from xml.etree import ElementTree

from experiments.results import pages
from experiments.results.pictures import INK, OURS, canvas, dress, placed


def drawn(path: Path) -> str:
    with canvas(path, 1, 2, (6.0, 3.0), "A <title>") as (figure, [[left, right]]):
        left.plot([0.0, 1.0], [0.0, 1.0], color="#2b6cb0", label="a & b")
        left.plot([0.0, 0.5], [0.25, 0.75], "o", label="<some>")
        left.plot([0.0, 0.5], [0.25, 1.75], "o")
        left.set_ylim(0.0, 1.0)  # the second of these marks lies outside
        right.bar([0, 1], [1.0, 2.0], color="white")
        right.set_xticks([0, 1], ["one", "two"])
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
    assert f"svg.plot {{ color-scheme: light dark; fill: {INK}; font-family: system-ui" in light


def test_colours_of_the_pages_are_dark_as_the_pages_are(tmp_path: Path) -> None:
    with canvas(tmp_path / "one.svg", 1, 1, (3.0, 3.0)) as (_, [[axes]]):
        axes.plot([0.0, 1.0], color=OURS)
    text, page = (tmp_path / "one.svg").read_text(), Path(pages.__file__).with_name("page.css").read_text()
    light, dark = re.findall(r"--a: (#\w+);", page)
    assert f'[style*="stroke: {light}"] {{ stroke: {dark} !important }}' in text


def test_a_plot_in_a_page_is_walked_through_and_shares_no_ids_with_another(tmp_path: Path) -> None:
    drawn(tmp_path / "one.svg")
    one, other = (placed((tmp_path / "one.svg").read_text(), label) for label in ("A 'first'", "A second"))
    assert one.startswith('<svg role="group" tabindex="0" aria-label="A &#39;first&#39;" ')
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (one, other)]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert set(re.findall(r"(?:url\(|href=\")#([^)\"]+)", one)) == ids[0]
