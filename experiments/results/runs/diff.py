"""Two runs on one page: every figure with its difference, and the page of one beside that of the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from experiments.results.pages import render
from experiments.results.report import tables
from experiments.results.runs.folders import PAGE, SUMMARY, read_summary
from experiments.results.summary import Summary, value_of
from topologies.errors import SpecError
from topologies.writing import write_whole


class Difference(NamedTuple):
    """A figure of two runs: as each played it, and by how much of the first the second differs (None: undefined)."""

    section: str
    label: str
    here: str
    there: str
    part: float | None


def differences(here: Summary, there: Summary) -> Iterator[Difference]:
    """Yield the figures of both runs at the scale that each was played in, in the report's order."""
    for row, other in zip(tables.figures(here), tables.figures(there), strict=True):
        one, another = value_of(here, row.name), value_of(there, row.name)
        part = (another - one) / abs(one) if one and another is not None else 0.0 if one == another else None
        real = row.real or other.real
        told = [f"{each.played} ({each.real})" if real and each.real else each.played for each in (row, other)]
        yield Difference(row.section, row.label, told[0], told[1], part)


def write_beside(out: Path, first: Path, second: Path) -> tuple[Path, list[Difference]]:
    """Write `out`/beside.html; return its path and its figures. SpecError: a folder has no finished run."""
    folders = (first, second)
    for folder in folders:
        if not folder.is_dir():
            raise SpecError("RUN", str(folder), "a folder that a run was written to")
    (here, made_here), (there, made_there) = (read_summary(folder / SUMMARY) for folder in folders)
    found = list(differences(here, there))
    pages = [os.path.relpath(folder / PAGE, out) if (folder / PAGE).exists() else "" for folder in folders]
    page = render(
        Path(__file__).with_name("diff.html"),
        title=f"{first.name} beside {second.name}",
        names=list(map(str, folders)),
        runs=(here, there),
        origins=[
            (what.replace("_", " "), made_here.get(what), made_there.get(what))
            for what in dict.fromkeys([*made_here, *made_there])
        ],
        verdicts=[tables.verdict(each) for each in (here, there)],
        figures=found,
        pages=[quote(page, errors="surrogateescape") for page in pages],
        origin=None,
    )
    out.mkdir(parents=True, exist_ok=True)
    path = out / "beside.html"
    write_whole(path, page)
    return path, found
