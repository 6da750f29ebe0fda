"""Dimensions of numbers: bytes to some power times seconds to some power.

Every number of a description that has units carries its dimension in the metadata of its dataclass field
(`rate_bytes_per_s: float = field(metadata=RATE)`). `scale` multiplies by it and the scenario files write units from it;
nothing is guessed from the name of a field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any

from topologies import units


class Dimension(Enum):
    """Dimension as powers: (of bytes, of seconds)."""

    NUMBER = (0, 0)  # shares, counts, ratios, costs
    SIZE = (1, 0)
    DURATION = (0, 1)
    RATE = (1, -1)
    RATE_CHANGE = (1, -2)  # how fast a rate rises
    PER_TIME = (0, -1)  # hazards, arrival rates, Algorithm 1's step

    @property
    def suffix(self) -> str:
        """The end of names of fields of this dimension; files leave it out and write the unit with the value."""
        return _SUFFIXES[self]

    def parse(self, text: str) -> float:
        """Return the number that a text with its unit means; ValueError states what is allowed."""
        return _PARSERS[self](text)

    def text(self, value: float) -> str:
        """Return the number with its unit; `parse` gives exactly the same number back."""
        return _WRITERS[self](value)


def _per_square_second(text: str) -> float:
    if not text.endswith("/s"):
        raise ValueError('a rate per second such as "10 MB/s/s"')
    return units.parse_rate(text[:-2])


_SUFFIXES = {
    Dimension.NUMBER: "",
    Dimension.SIZE: "_bytes",
    Dimension.DURATION: "_s",
    Dimension.RATE: "_bytes_per_s",
    Dimension.RATE_CHANGE: "_bytes_per_s2",
    Dimension.PER_TIME: "_per_s",
}
_PARSERS: dict[Dimension, Callable[[str], float]] = {
    Dimension.NUMBER: float,
    Dimension.SIZE: units.parse_size,
    Dimension.DURATION: units.parse_duration,
    Dimension.RATE: units.parse_rate,
    Dimension.RATE_CHANGE: _per_square_second,
    Dimension.PER_TIME: units.parse_per_time,
}
_WRITERS: dict[Dimension, Callable[[float], str]] = {
    Dimension.NUMBER: units.plain,
    Dimension.SIZE: units.exact_size,
    Dimension.DURATION: units.exact_duration,
    Dimension.RATE: units.exact_rate,
    Dimension.RATE_CHANGE: lambda value: f"{units.exact_rate(value)}/s",
    Dimension.PER_TIME: units.exact_per_time,
}

Metadata = Mapping[str, Any]


def _metadata(dimension: Dimension) -> Metadata:
    return MappingProxyType({"dimension": dimension})


NUMBER = _metadata(Dimension.NUMBER)
SIZE = _metadata(Dimension.SIZE)
DURATION = _metadata(Dimension.DURATION)
RATE = _metadata(Dimension.RATE)
RATE_CHANGE = _metadata(Dimension.RATE_CHANGE)
PER_TIME = _metadata(Dimension.PER_TIME)
# the dimension of the field that holds the whole object
HELD: Metadata = MappingProxyType({"dimension": "held"})
