"""The values of a claim: measured numbers beside the published ones, curves for the picture, and settings of the run.

They are kept as `values.json` in the claim's directory. Picture, verdict and pages are made from that file alone, so claims may
be run one at a time, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from topologies.decoding import UNDECODABLE
from topologies.errors import TestbedError
from topologies.writing import write_whole

FILE: Final = "values.json"


class ValuesError(TestbedError):
    """A values file that is not as written here, or a missing value. The message names it and lists the present ones."""


@dataclass(frozen=True, slots=True)
class Value:
    """A number.

    `group` is the panel or table row, `system` the producer.

    `low`, `high`: 95 % interval over the seeds; `exact`: the value in theory; `published`: the value that the paper
    prints; `p_value`: of the paired test, where the number is a difference. None: there is none. Two to five seeds have no
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
    """A point of a curve: mean over the seeds, and the 95 % interval of the mean."""

    group: str
    system: str
    quantity: str
    x: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a claim. `settings`: name -> its value, as text. `spent_s`: the time that the run took, or its last part."""

    rows: tuple[Value, ...]
    curves: tuple[Point, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    is_quick: bool = False
    spent_s: float = 0.0

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


def write(values: Values, directory: Path) -> None:
    """Write `values.json`; make the directory if it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(values, enc_hook=float), indent=1)
    write_whole(directory / FILE, text + b"\n")


def read(directory: Path) -> Values:
    """Read the file of `write`. ValuesError: it is missing or not as written."""
    path = directory / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Values)
    except OSError as error:
        raise ValuesError(f"{path}: {error.strerror}; run the claim first") from error
    except UNDECODABLE as error:
        raise ValuesError(f"{path}: {error}") from error
