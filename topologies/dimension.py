"""Dimensions of numbers: bytes to some power times seconds to some power.

Every number of a description that has units carries its dimension in the metadata of its dataclass field
(`rate_bytes_per_s: float = field(metadata=RATE)`). `scale` multiplies by it and the scenario files write units from it;
nothing is guessed from the name of a field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from topologies.units import plain

_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\s*(.*)", re.ASCII)


class Units(NamedTuple):
    """Units of a dimension. A number with its unit means: multiplied by the unit's first factor, divided by its second."""

    suffix: str  # of names of fields; files leave it out and write the unit with the value
    allowed: str  # in words
    written: Mapping[str, tuple[float, float]]  # the preferred first
    only_read: Mapping[str, tuple[float, float]] = MappingProxyType({})

    def parse(self, text: str) -> float:
        """Return the number that a text with its unit means; ValueError states what is allowed."""
        found = _QUANTITY.fullmatch(text)
        factors = {**self.only_read, **self.written}.get("".join(found[2].split())) if found else None
        if found is None or factors is None or not math.isfinite(float(found[1])):
            raise ValueError(self.allowed)
        return float(found[1]) * factors[0] / factors[1]

    def text(self, value: float) -> str:
        """Return the shortest text that `parse` turns back into this very number."""
        numbers = [(value * by / times, unit) for unit, (times, by) in self.written.items()]
        finite = [(number, unit) for number, unit in numbers if math.isfinite(number)]
        rounded = [(float(f"{number:.12g}"), unit) for number, unit in finite]  # undoes 0.99 / 3600 * 3600
        texts = [f"{plain(number)} {unit}".strip() for number, unit in (*rounded, *finite)]
        return min((t for t in texts if self.parse(t) == value), key=lambda t: len(t) + ("." in t))


class Dimension(Enum):
    """Dimension as powers: (of bytes, of seconds)."""

    NUMBER = (0, 0)  # shares, counts, ratios, costs
    SIZE = (1, 0)
    DURATION = (0, 1)
    RATE = (1, -1)
    PER_TIME = (0, -1)  # hazards, arrival rates, Algorithm 1's step

    @property
    def units(self) -> Units:
        """The units of this dimension in files."""
        return _UNITS[self]


_DECIMAL = {"G": 1e9, "M": 1e6, "k": 1e3}
_BINARY = {"Gi": 2.0**30, "Mi": 2.0**20}
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_UNITS = {
    Dimension.NUMBER: Units("", "a finite number", {"": (1.0, 1.0)}),
    Dimension.SIZE: Units(
        "_bytes",
        'a size such as "120 MB", "3.2 GB" or "64 MiB"',
        {f"{prefix}B": (scale, 1.0) for prefix, scale in (_DECIMAL | _BINARY | {"": 1.0}).items()},
        {"TB": (1e12, 1.0), "KiB": (2.0**10, 1.0)},
    ),
    Dimension.DURATION: Units(
        "_s",
        'a duration such as "200 us", "90 s", "10 min" or "12 h"',
        # 200 / 1e6 is 0.0002, and 200 * 1e-6 is not
        {unit: (seconds, 1.0) for unit, seconds in _SECONDS.items()} | {"us": (1.0, 1e6), "ms": (1.0, 1e3)},
    ),
    Dimension.RATE: Units(
        "_bytes_per_s",
        'a rate such as "100 Mbit/s", "10 Gbit/s" or "12.5 MB/s"',
        {f"{prefix}bit/s": (scale, 8.0) for prefix, scale in (_DECIMAL | {"": 1.0}).items()} | {"B/s": (1.0, 1.0)},
        {f"{prefix}B/s": (scale, 1.0) for prefix, scale in (_DECIMAL | {"T": 1e12}).items()} | {"Tbit/s": (1e12, 8.0)},
    ),
    Dimension.PER_TIME: Units(
        "_per_s",
        'a number per time such as "0.99 /h", "12 /d" or "0.01 /s"',
        {f"/{unit}": (1.0, _SECONDS[unit]) for unit in ("h", "s", "min", "d")},
    ),
}

Metadata = Mapping[str, Any]


def _metadata(dimension: Dimension) -> Metadata:
    return MappingProxyType({"dimension": dimension})


NUMBER = _metadata(Dimension.NUMBER)
SIZE = _metadata(Dimension.SIZE)
DURATION = _metadata(Dimension.DURATION)
RATE = _metadata(Dimension.RATE)
# the dimension of the field that holds the whole object
HELD: Metadata = MappingProxyType({"dimension": "held"})
