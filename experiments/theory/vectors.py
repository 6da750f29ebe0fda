"""A file of reference vectors: {"vectors": [{"id", "inputs", "outputs", "rel_tol"}, ...]}, read and held to that form.

Numbers may be written as "inf". A file that is no such thing is an error that names the file and the key; an input that an
evaluator misses or cannot use is that one vector's failure (`BadInput`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies.errors import SpecError, TestbedError

REL_TOL = 1e-5  # values are recorded to six digits
INFINITIES = {"inf": math.inf, "+inf": math.inf, "infinity": math.inf, "-inf": -math.inf}


class BadInput(TestbedError):
    """A vector's input is missing, or of another kind than its family takes."""

    def __init__(self, name: str, found: object, allowed: str) -> None:
        super().__init__(f"input {name} = {found!r}: {allowed}")


@dataclass(frozen=True, slots=True)
class Given:
    """The inputs of one vector, by name; the first name that is there counts, where several are in use."""

    values: Mapping[str, Any]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def number(self, *names: str, default: float | None = None) -> float:
        """A number, infinity included. BadInput: not there (and no default), or not a number."""
        name, found = self._first(names, default)
        return _number(name, found)

    def numbers(self, *names: str, default: float | None = None, count: int = 0) -> list[float]:
        """A list of numbers; one number stands for a list of `count` of it."""
        name, found = self._first(names, default)
        if isinstance(found, list):
            return [_number(f"{name}[{i}]", item) for i, item in enumerate(found)]
        return [_number(name, found)] * count

    def text(self, *names: str, default: str | None = None) -> str:
        """A string. BadInput: not there (and no default), or not a string."""
        name, found = self._first(names, default)
        if not isinstance(found, str):
            raise BadInput(name, found, "must be a string")
        return found

    def mean_h(self, rate: str) -> float:
        """1/rate, from the exact inverse (`inv_lam`) where it is given, else from the rate itself (`lam`)."""
        if f"inv_{rate}" in self.values:
            return self.number(f"inv_{rate}")
        found = self.number(rate)
        return 1.0 / found if found else math.inf

    def _first(self, names: tuple[str, ...], default: Any) -> tuple[str, Any]:
        for name in names:
            if name in self.values and self.values[name] is not None:
                return name, self.values[name]
        if default is None:
            raise BadInput(names[0], None, f"is missing (there are: {', '.join(self.values)})")
        return names[0], default


@dataclass(frozen=True, slots=True)
class Vector:
    """One claim: a formula, named by the family at the head of the id, takes these inputs to these outputs."""

    id: str
    given: Given
    outputs: Mapping[str, Any]
    rel_tol: float


def load(path: Path) -> list[Vector]:
    """All vectors of a file. SpecError, with file and key: not to be read, no JSON, not of the form above."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError("file", error.strerror, "a file of vectors that can be read", str(path)) from error
    except (ValueError, RecursionError) as error:  # no JSON, or no UTF-8, or nested without end
        raise SpecError("file", str(error), "JSON", str(path)) from error
    try:
        if not isinstance(document, dict):
            raise SpecError("(top level)", type(document).__name__, 'an object with a list "vectors"')
        if not isinstance(vectors := document.get("vectors"), list):
            raise SpecError("vectors", vectors, "a list of objects")
        return [_vector(f"vectors[{i}]", item) for i, item in enumerate(vectors)]
    except SpecError as error:
        raise error.within(str(path)) from error


def as_number(value: object) -> float | None:
    """The number that a JSON value stands for, "inf" included; None if it is none."""
    if isinstance(value, str):
        return INFINITIES.get(value.strip().lower())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None


def _vector(key: str, item: object) -> Vector:
    if not isinstance(item, dict):
        raise SpecError(key, item, "an object with id, inputs and outputs")
    if not isinstance(item.get("id"), str) or not item["id"].strip():
        raise SpecError(f"{key}.id", item.get("id"), "a string such as p1.thm1.0")
    for name in ("inputs", "outputs"):
        if not isinstance(item.get(name), dict):
            raise SpecError(f"{key}.{name}", item.get(name), f"an object ({item['id']})")
    if not item["outputs"]:
        raise SpecError(f"{key}.outputs", {}, f"at least one value ({item['id']})")
    rel_tol = as_number(item.get("rel_tol", REL_TOL))
    if rel_tol is None or not 0.0 <= rel_tol < math.inf:
        raise SpecError(f"{key}.rel_tol", item["rel_tol"], f"a number of 0 or more ({item['id']})")
    return Vector(item["id"], Given(item["inputs"]), item["outputs"], rel_tol)


def _number(name: str, found: object) -> float:
    value = as_number(found)
    if value is None or math.isnan(value):
        raise BadInput(name, found, 'must be a number, or "inf"')
    return value
