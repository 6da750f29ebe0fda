"""Two to six runs on one page: the figures that differ, and the runs' lost time and time lines on shared axes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from experiments.results.events_file import CAMPUS, EVENTS, read_event
from experiments.results.pages import render
from experiments.results.report import tables
from experiments.results.report.charts import parts_of, stacked
from experiments.results.report.timeline import timeline
from experiments.results.run_context import RunContext
from experiments.results.runs.folders import PAGE, SUMMARY, read_summary
from experiments.results.summary import Summary, value_of
from topologies import files
from topologies.errors import SpecError
from topologies.scale import Scale
from topologies.writing import write_whole

MAX_RUNS = 6
LETTERS = "ABCDEF"
NAMED = ("scenario", "policy", "campus", "world", "seed")


class Difference(NamedTuple):
    """A figure of several runs at real scale, and by which part of the first each differs (None: undefined)."""

    section: str
    label: str
    cells: tuple[str, ...]
    parts: tuple[float | None, ...]

    @property
    def differs(self) -> bool:
        """Return False if every run has the same."""
        return len(set(self.cells)) > 1 or any(self.parts)

    @property
    def notes(self) -> list[str]:
        """Format the differences as "+12.5 %"; nothing where one is none or rounds to none."""
        return [f"{100.0 * part:+.1f} %" if part and abs(part) >= 0.0005 else "" for part in self.parts]


def differences(runs: Sequence[Summary]) -> Iterator[Difference]:
    """Yield the figures of all runs, in the report's order."""
    for rows in zip(*map(tables.figures, runs), strict=True):
        if (name := rows[0].name) == "seed":
            continue
        first, *_ = values = [run.real_scale.get(name, value_of(run, name)) for run in runs]
        parts = (
            (value - first) / abs(first) if first and value is not None else 0.0 if value == first else None
            for value in values
        )
        yield Difference(rows[0].section, rows[0].label, tuple(row.real or row.played for row in rows), tuple(parts))


def write_beside(out: Path, folders: Sequence[Path]) -> tuple[Path, list[Difference]]:
    """Write `out`/beside.html; return its path and the figures that differ. SpecError: a folder has no finished run."""
    if not 2 <= len(folders) <= MAX_RUNS:
        raise SpecError("RUN", len(folders), f"two to {MAX_RUNS} folders of runs")
    for folder in folders:
        if not folder.is_dir():
            raise SpecError("RUN", str(folder), "a folder that a run was written to")
    runs, origins = zip(*(read_summary(folder / SUMMARY) for folder in folders), strict=True)
    found = [row for row in differences(runs) if row.differs]
    letters = LETTERS[: len(runs)]
    named = {what: [str(getattr(run, what)) for run in runs] for what in NAMED}
    named |= {
        what.replace("_", " "): [str(origin.get(what) or "-") for origin in origins]
        for what in dict.fromkeys(what for origin in origins for what in origin)
    }
    lost = {
        f"{letter} {folder.name}": {part: lost_s / run.scale["time"] for part, lost_s in parts_of(run).items()}
        for letter, folder, run in zip(letters, folders, runs, strict=True)
    }
    longest_s = max(run.duration_s / run.scale["time"] for run in runs)
    page = render(
        Path(__file__).with_name("diff.html"),
        title=" beside ".join(folder.name for folder in folders),
        letters=letters,
        names=list(map(str, folders)),
        pages=[
            quote(os.fsencode(os.path.relpath(folder / PAGE, out))) if (folder / PAGE).exists() else ""
            for folder in folders
        ],
        verdicts=[tables.verdict(run) for run in runs],
        named={what: cells for what, cells in named.items() if len(set(cells)) > 1},
        alike={what: cells[0] for what, cells in named.items() if len(set(cells)) == 1},
        figures=found,
        lost=stacked(lost, "Lost GPU time by part") if any(map(any, (row.values() for row in lost.values()))) else None,
        timelines=[_timeline(*each, longest_s) for each in zip(folders, runs, strict=True)],
        origin=None,
    )
    out.mkdir(parents=True, exist_ok=True)
    path = out / "beside.html"
    write_whole(path, page)
    return path, found


def _timeline(folder: Path, run: Summary, longest_s: float) -> Markup | None:
    """Draw a run's time line at real scale, on an axis of that length; None: the folder lacks its facts or its campus."""
    if not ((events := folder / EVENTS).is_file() and (campus := folder / CAMPUS).is_file()):
        return None
    time = run.scale["time"]
    with events.open("rb") as lines:
        facts = [read_event(line, number, events) for number, line in enumerate(lines, 1)]
    context = RunContext(run.seed, Scale(), files.load(campus), {}, 0.0, 0.0, ended_at_s=longest_s)
    return timeline([(at_s / time, fact) for at_s, fact in facts], context, has_days=False)
