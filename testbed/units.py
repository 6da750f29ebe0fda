"""Human units, at the edges only: the ones of `topologies.units`, under the name that the testbed uses."""

from topologies.units import (
    GBIT_PER_S,
    HOUR_S,
    MBIT_PER_S,
    MIB,
    exact_duration,
    exact_per_time,
    exact_rate,
    exact_size,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_per_time,
    parse_rate,
    parse_size,
    plain,
)

__all__ = [
    "GBIT_PER_S",
    "HOUR_S",
    "MBIT_PER_S",
    "MIB",
    "exact_duration",
    "exact_per_time",
    "exact_rate",
    "exact_size",
    "format_duration",
    "format_rate",
    "format_size",
    "parse_duration",
    "parse_per_time",
    "parse_rate",
    "parse_size",
    "plain",
]
