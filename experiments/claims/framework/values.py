"""The values of a claim: measured numbers beside the published ones, curves for the picture, and settings of the run.

Three files in the claim's directory, for people and for programs: `values.csv` (a row a number), `curves.csv` (a row a
point), `settings.json`. Numbers are written so that reading gives the same bits.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from topologies.errors import TestbedError
from topologies.writing import whole, write_whole


class ValuesError(TestbedError):
    """A values file that is not as written here, or a missing value. The message names it and lists the present ones."""


@dataclass(frozen=True, slots=True)
class Value:
    """A number.

    `group` is the panel or table row, `system` the producer.

    `low`, `high`: 95 % interval over the seeds; `exact`: the value in theory; `published`: the value that the paper
    prints; `p_value`: of the paired test, where the number is a difference. None: there is none.
    """

    group: str
    system: str
    quantity: str
    unit: str
    measured: float
    low: float | None = None
    high: float | None = None
    seeds: int = 1
    exact: float | None = None
    published: float | None = None
    p_value: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a curve: mean over the seeds, 95 % interval of the mean, and the range of 80 % of the seeds."""

    group: str
    system: str
    quantity: str
    x: float
    mean: float
    low: float
    high: float
    tenth: float
    ninetieth: float


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a claim. `settings`: name -> its value, as text."""

    rows: tuple[Value, ...]
    curves: tuple[Point, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)

    def find(self, group: str, system: str, quantity: str) -> Value:
        """Return the row. ValuesError: there is none."""
        if (found := self.get(group, system, quantity)) is not None:
            return found
        of_group = [row for row in self.rows if row.group == group]
        if of_system := [row.quantity for row in of_group if row.system == system]:
            instead = f"of {group} / {system} there are {', '.join(of_system)}"
        elif of_group:
            instead = f"of {group} there are {', '.join(dict.fromkeys(row.system for row in of_group))}"
        else:
            instead = f"there are {', '.join(self.groups()) or 'none at all'}"
        raise ValuesError(f"no value {group} / {system} / {quantity}; {instead}")

    def get(self, group: str, system: str, quantity: str) -> Value | None:
        """Return the row, or None: where nothing happened that could be counted, there is none."""
        wanted = group, system, quantity
        return next((row for row in self.rows if (row.group, row.system, row.quantity) == wanted), None)

    def groups(self) -> list[str]:
        """Return the groups in the order of the rows, each once."""
        return list(dict.fromkeys(row.group for row in self.rows))

    def curve(self, group: str, system: str, quantity: str) -> list[Point]:
        """Return the curve's points in order of x; empty if there are none."""
        found = [p for p in self.curves if (p.group, p.system, p.quantity) == (group, system, quantity)]
        return sorted(found, key=lambda point: point.x)


def write(values: Values, directory: Path) -> None:
    """Write the three files; make the directory if it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    _write_rows(directory / "values.csv", Value, values.rows)
    _write_rows(directory / "curves.csv", Point, values.curves)
    write_whole(directory / "settings.json", json.dumps(values.settings, indent=2) + "\n")


def read(directory: Path) -> Values:
    """Read the files of `write`. ValuesError: a file is missing or not as written."""
    try:
        settings = json.loads((directory / "settings.json").read_text())
        rows = _read_rows(directory / "values.csv", Value)
        return Values(rows, _read_rows(directory / "curves.csv", Point), settings)
    except OSError as error:
        raise ValuesError(f"{error.filename}: {error.strerror}; run the claim first") from error
    except (ValueError, RecursionError, csv.Error) as error:
        raise ValuesError(f"{directory}: {error}") from error


Row = TypeVar("Row", Value, Point)


def _write_rows(path: Path, kind: type[Any], rows: Iterable[Any]) -> None:
    with whole(path) as scratch, scratch.open("w", newline="") as file:
        writer = csv.DictWriter(file, [column.name for column in fields(kind)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def _read_rows(path: Path, kind: type[Row]) -> tuple[Row, ...]:
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        wanted = [column.name for column in fields(kind)]
        if reader.fieldnames is None or list(reader.fieldnames) != wanted:
            raise ValuesError(f"{path}: columns {reader.fieldnames}, must be {wanted}")
        rows = []
        for cells in reader:
            try:
                rows.append(
                    kind(**{each.name: _cell(str(each.type), cells[each.name]) for each in fields(kind)})
                )
            except (TypeError, ValueError) as error:
                place = f"{path}, line {reader.line_num}"
                raise ValuesError(f"{place}: {error}; columns are {', '.join(wanted)}") from error
        return tuple(rows)


def _cell(kind: str, text: str) -> Any:
    if kind == "str":
        return text
    if kind == "int":
        return int(text)
    return None if text == "" and "None" in kind else float(text)
