"""Domains of closed forms. Outside its domain a formula raises an error; it never answers NaN."""

from __future__ import annotations

import math

from topologies.errors import TestbedError


class DomainError(TestbedError):
    """A value outside a theorem's domain; the message names it and the condition."""

    def __init__(self, name: str, value: object, condition: str) -> None:
        self.name, self.value, self.condition = name, value, condition
        super().__init__(f"{name} = {value!r}: {condition}")


def require(holds: bool, name: str, value: object, condition: str) -> None:
    """Raise DomainError unless `holds`."""
    if not holds:
        raise DomainError(name, value, condition)


def positive(name: str, value: float) -> float:
    """Return `value`, if it is a finite number above 0; else DomainError."""
    require(0.0 < value < math.inf, name, value, "must be a finite number above 0")
    return value


def not_negative(name: str, value: float) -> float:
    """Return `value`, if it is a finite number of 0 or more; else DomainError."""
    require(0.0 <= value < math.inf, name, value, "must be a finite number of 0 or more")
    return value


def share(name: str, value: float) -> float:
    """Return `value`, if it is a number from 0 to 1; else DomainError."""
    require(0.0 <= value <= 1.0, name, value, "must be a number from 0 to 1")
    return value
