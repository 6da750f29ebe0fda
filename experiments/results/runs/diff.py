"""Two runs on one page: every figure with its difference, and each picture of one beside the same of the other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from experiments.results.pages import render
from experiments.results.report import tables
from experiments.results.runs.folders import PAGE, SUMMARY, read_summary
from experiments.results.summary import Summary, value_of
from topologies.errors import SpecError
from topologies.writing import write_whole

MOST_BYTES = 32 << 20  # of a page whose pictures are shown
# A picture of a report, and the sentence below one that was thinned.
_PICTURE = re.compile(
    r'<svg [^>]*aria-label="([^"]*)"[^>]*>(?:(?!<svg ).)*?</svg>(?:<p class="thinned".*?</p>)?', re.DOTALL
)


class Difference(NamedTuple):
    """A figure of two runs: as each played it, and by how much of the first the second differs (None: undefined)."""

    section: str
    label: str
    here: str
    there: str
    part: float | None


def beside(first: Path, second: Path) -> str:
    """Return the HTML of two folders; SpecError: one is no finished run. A run without its page has no pictures."""
    (here, made_here), (there, made_there) = (read_summary(folder / SUMMARY) for folder in (first, second))
    ours, theirs = _pictures(first / PAGE), _pictures(second / PAGE)
    labels = list(dict.fromkeys([*ours, *theirs]))
    return render(
        Path(__file__).with_name("diff.html"),
        title=f"{first.name} beside {second.name}",
        names=(str(first), str(second)),
        runs=(here, there),
        origins=[
            (what.replace("_", " "), made_here.get(what), made_there.get(what))
            for what in dict.fromkeys([*made_here, *made_there])
        ],
        verdicts=[tables.verdict(each) for each in (here, there)],
        figures=list(differences(here, there)),
        pictures=[(label, ours.get(label), theirs.get(label)) for label in labels],
        origin=None,
    )


def differences(here: Summary, there: Summary) -> Iterator[Difference]:
    """Yield the figures of both runs at the scale that each was played in, in the report's order."""
    for row, other in zip(tables.figures(here), tables.figures(there), strict=True):
        one, another = value_of(here, row.name), value_of(there, row.name)
        part = (another - one) / abs(one) if one and another is not None else 0.0 if one == another else None
        real = row.real or other.real
        told = [
            f"{each.played} ({each.real})" if real and each.real else each.played for each in (row, other)
        ]
        yield Difference(row.section, row.label, told[0], told[1], part)


def _pictures(page: Path) -> dict[str, Markup]:
    """Return aria-label -> picture, of a report that this program wrote."""
    try:
        if page.stat().st_size > MOST_BYTES:
            return {}
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    return {found[1]: Markup(found[0]) for found in _PICTURE.finditer(text)}


def write_beside(out: Path, first: Path, second: Path) -> Path:
    """Write `out`/beside.html; return its path. SpecError as `beside`."""
    for folder in (first, second):
        if not folder.is_dir():
            raise SpecError("RUN", str(folder), "a folder that a run was written to")
    page = beside(first, second)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "beside.html"
    write_whole(path, page)
    return path
