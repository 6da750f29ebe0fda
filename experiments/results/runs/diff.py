"""Two to six runs beside one another: the figures that differ, at real scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.results.report import tables
from experiments.results.runs.folders import SUMMARY, read_summary
from experiments.results.summary import Summary, value_of
from topologies.errors import SpecError

MAX_RUNS = 6


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


def differing(folders: Sequence[Path]) -> list[Difference]:
    """Return the figures that differ among the runs of these folders. SpecError: a folder has no finished run."""
    if not 2 <= len(folders) <= MAX_RUNS:
        raise SpecError("RUN", len(folders), f"two to {MAX_RUNS} folders of runs")
    for folder in folders:
        if not folder.is_dir():
            raise SpecError("RUN", str(folder), "a folder that a run was written to")
    runs = [read_summary(folder / SUMMARY)[0] for folder in folders]
    return [row for row in differences(runs) if row.differs]
