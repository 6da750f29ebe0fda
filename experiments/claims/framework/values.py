"""The values of a claim: measured numbers beside the published ones, curves for the picture, and settings of the run.

They are kept as `NAME.json` in the folder of the claims. Picture, verdict and pages are made from that file alone, so claims may
be run one at a time, in any order. `experiments/values` has the files of the last release's runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from experiments.results.provenance import Provenance
from topologies.decoding import UNDECODABLE
from topologies.errors import TestbedError
from topologies.units import format_duration
from topologies.writing import write_whole

TIMES: Final = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
KEPT: Final = Path(__file__).parents[2] / "values"  # the committed files


class ValuesError(TestbedError):
    """A values file that is not as written here, or a missing value. The message names it and lists the present ones."""


@dataclass(frozen=True, slots=True)
class Value:
    """A number.

    `group` is the panel or table row, `system` the producer.

    `low`, `high`: 95 % interval over the seeds; `exact`: the value in theory; `published`: the value that the paper
    prints; `p_value`: of the paired test, where the number is a difference. None: there is none. Fewer than six seeds have no
    interval.
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
    """A point of a curve: mean over the seeds, and the 95 % interval of the mean where there are six."""

    group: str
    system: str
    quantity: str
    x: float
    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a claim. `settings`: name -> its value, as text. `spent_s`: the time that the run took, or its last part.

    `seeds`: of the row that has most; others have the first of them.
    """

    rows: tuple[Value, ...]
    curves: tuple[Point, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    is_quick: bool = False
    seeds: tuple[int, ...] = ()
    spent_s: float = 0.0
    origin: Provenance | None = None

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


def in_units(number: float | None, unit: str = "") -> str:
    """Format a number of a claim: times in a fitting unit, all else in its own; nothing for None."""
    if number is None:
        return ""
    if unit in TIMES:
        return format_duration(number * TIMES[unit])
    large = abs(number) >= 1e4
    words = f"{number:,.0f}".replace(",", " ") if large and abs(number) < 1e12 else f"{number:.4g}"
    return words if unit in ("", "ratio") else f"{words} {unit}"


def file_of(folder: Path, claim: str) -> Path:
    """Return the values file of a claim."""
    return folder / f"{claim}.json"


def write(values: Values, path: Path) -> None:
    """Write a values file; make its folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(values, enc_hook=float), indent=1)
    write_whole(path, text + b"\n")


def read(path: Path) -> Values:
    """Read the file of `write`. ValuesError: it is missing or not as written."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Values)
    except OSError as error:
        raise ValuesError(f"{path}: {error.strerror}; run the claim first") from error
    except UNDECODABLE as error:
        raise ValuesError(f"{path}: {error}") from error
