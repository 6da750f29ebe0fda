"""Reference vectors: recorded inputs and outputs of both papers' formulas, each held to the formula that its id names.

A few lie beside this file. More are read where they are there: `../shared/papers/reference_vectors.json` beside the
repository, and the file that the environment variable RECLAIMNET_VECTORS names. A file is
{"vectors": [{"id", "inputs", "outputs", "rel_tol"}, ...]}; numbers may be written as "inf", a refusal as "error".
"""

from __future__ import annotations

import copy
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from experiments.theory.domain import DomainError
from tests.vector_families import FAMILIES, BadInput, Given, as_number

OURS = Path(__file__).with_name("theory_vectors.json")
RECORDED = Path(__file__).parents[2] / "shared" / "papers" / "reference_vectors.json"
NAMED = os.environ.get("RECLAIMNET_VECTORS")
REL_TOL = 1e-5  # values are recorded to six digits
ROUNDING, TINY = 1e-9, 1e-18  # absolute: beside a recorded 0, and beside any value
# outputs of rules that the papers compare with, and that the program does not have
OF_OTHERS = {"edf_skip", "smallest_demand_count", "equal_increment"}
REFUSALS = ("error", "domain error", "domainerror", "infeasible", "undefined", "nan")


def load(path: Path) -> list[dict[str, Any]]:
    vectors: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["vectors"]
    return vectors


VECTORS = load(OURS)
FILES = [OURS, *([RECORDED] if RECORDED.exists() else []), *([Path(NAMED)] if NAMED else [])]


def faults(vector: dict[str, Any]) -> list[str]:
    """Outputs of a vector that are not as recorded. The family has the longest prefix of the id."""
    families = [prefix for prefix in FAMILIES if f"{vector['id']}.".startswith(prefix)]
    if not families:
        return [f"no such family {vector['id']}"]
    outputs = {name: value for name, value in vector["outputs"].items() if name not in OF_OTHERS}
    try:
        found = FAMILIES[max(families, key=len)](Given(vector["inputs"]), outputs)
    except (BadInput, DomainError, ValueError, ArithmeticError) as error:
        found = dict.fromkeys(outputs, error)
    return [
        f"{name}: expected {value}, found {found.get(name, 'no such output')}"
        for name, value in outputs.items()
        if name not in found or not agrees(value, found[name], as_number(vector.get("rel_tol", REL_TOL)))
    ]


def agrees(expected: Any, found: Any, rel_tol: float) -> bool:
    """Whether a recorded value and a computed one are the same within the tolerance.

    Lists in order, levels beyond the recorded ones being 0; sets in any order; "error" and null agree with a refusal.
    """
    if isinstance(found, DomainError | ValueError):
        return expected is None or (isinstance(expected, str) and expected.strip().lower() in REFUSALS)
    if isinstance(expected, list) and isinstance(found, set):
        return all(isinstance(item, int) for item in expected) and sorted(expected) == sorted(found)
    if isinstance(expected, list) and isinstance(found, list | tuple):
        longest = max(len(expected), len(found))
        pairs = zip(*([*each, *[0.0] * (longest - len(each))] for each in (expected, found)), strict=True)
        return all(agrees(one, other, rel_tol) for one, other in pairs)
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    try:
        number, value = as_number(expected), as_number(found)
    except BadInput:
        return False
    if math.isinf(number) or math.isinf(value):
        return number == value
    return abs(value - number) <= max(rel_tol * abs(number), TINY if number else ROUNDING)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_vector_is_met(path: Path) -> None:
    vectors = load(path)
    assert vectors
    assert {vector["id"]: wrong for vector in vectors if (wrong := faults(vector))} == {}


def test_the_vectors_beside_the_test_are_of_every_family() -> None:
    for prefix in FAMILIES:
        assert any(f"{vector['id']}.".startswith(prefix) for vector in VECTORS), prefix


def changed(value: Any) -> Any:
    """Another value, by one percent or altogether."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [changed(value[0]), *value[1:]]
    if isinstance(value, str):
        return 7.25
    return value * 1.01 if value else 0.01


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["id"]))
def test_any_other_output_is_a_fault_and_is_named(vector: dict[str, Any]) -> None:
    for name, value in vector["outputs"].items():
        other = copy.deepcopy(vector) | {"outputs": {name: changed(value)}}
        [fault] = faults(other)
        assert fault.startswith(f"{name}: expected ")


def test_what_cannot_be_computed_is_a_fault() -> None:
    good = VECTORS[0]
    assert faults(good | {"id": "p3.thm1.0"}) == ["no such family p3.thm1.0"]
    assert "is missing" in faults(good | {"inputs": {}})[0]
    assert "must be a number" in faults(good | {"inputs": dict.fromkeys(good["inputs"], "much")})[0]
    assert "no such output" in faults(good | {"outputs": {"price": 1.0}})[0]
    assert not agrees(1.0, math.nan, REL_TOL) and not agrees(8.0, DomainError("x", 9, "no"), REL_TOL)
