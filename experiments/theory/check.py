"""`reclaimnet theory check FILE`: every vector of a file against the formula that its id names.

A line a vector, `pass ID`, `FAIL ID name: expected X, found Y` or `no such family ID`, then the counts of all three.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.theory import families_network, families_queue
from experiments.theory.domain import DomainError
from experiments.theory.families import Evaluate
from experiments.theory.vectors import BadInput, Vector, as_number, load

FAMILIES: dict[str, Evaluate] = families_queue.FAMILIES | families_network.FAMILIES
ROUNDING = 1e-9  # what may stand where a vector says 0
TINY = 1e-18  # beside any value
REFUSALS = ("error", "domain error", "domainerror", "infeasible", "undefined", "nan")


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """Of one vector. `known`: its family is one of ours; `faults`: what was not as expected."""

    id: str
    known: bool
    faults: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.known:
            return f"no such family {self.id}"
        return f"FAIL {self.id} {'; '.join(self.faults)}" if self.faults else f"pass {self.id}"


def check(path: Path, say: Callable[[str], object]) -> int:
    """Judge a file, saying each line; the number of vectors that were not met, for want of a family too.

    SpecError: the file is not one of vectors.
    """
    verdicts = []
    for verdict in judge_all(load(path)):
        say(str(verdict))
        verdicts.append(verdict)
    failed = sum(bool(verdict.faults) for verdict in verdicts)
    unknown = sum(not verdict.known for verdict in verdicts)
    say(f"{len(verdicts) - unknown - failed} passed, {failed} failed, {unknown} without a family")
    return failed + unknown


def judge_all(vectors: Iterable[Vector]) -> Iterator[CheckVerdict]:
    """A verdict on each, in order."""
    return (judge(vector) for vector in vectors)


def judge(vector: Vector) -> CheckVerdict:
    """Judge by the family with the longest prefix of the id; the last dot of a prefix may be the id's end."""
    prefixes = [prefix for prefix in FAMILIES if f"{vector.id}.".startswith(prefix)]
    if not prefixes:
        return CheckVerdict(vector.id, known=False)
    evaluate = FAMILIES[max(prefixes, key=len)]
    try:
        found = evaluate(vector.given, vector.outputs)
    except (BadInput, DomainError, ArithmeticError, ValueError) as error:
        # a law's domain, or arithmetic beyond floats: every output stands where this error stands
        found = dict.fromkeys(vector.outputs, error)
    faults = [
        f"{name}: expected {_shown(value)}, found {_shown(found[name]) if name in found else 'no such output'}"
        for name, value in vector.outputs.items()
        if name not in found or not agrees(value, found[name], vector.rel_tol)
    ]
    return CheckVerdict(vector.id, known=True, faults=tuple(faults))


def agrees(expected: Any, found: Any, rel_tol: float) -> bool:
    """Whether a recorded JSON value and a computed one are the same within the tolerance.

    Lists in order, levels beyond the recorded ones being 0; sets in any order; "error" and null agree with a refusal.
    """
    if isinstance(found, DomainError):
        return expected is None or (isinstance(expected, str) and expected.strip().lower() in REFUSALS)
    if isinstance(found, Exception):
        return False
    if isinstance(expected, list) and isinstance(found, set | frozenset):
        return all(isinstance(item, int) for item in expected) and sorted(expected) == sorted(found)
    if isinstance(expected, list) and isinstance(found, list | tuple):
        beyond = all(agrees(0.0, item, rel_tol) for item in found[len(expected) :])
        padded = [*found, *[0.0] * (len(expected) - len(found))]
        return beyond and all(agrees(e, f, rel_tol) for e, f in zip(expected, padded, strict=False))
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    number = as_number(expected)
    if number is None or not isinstance(found, int | float):
        return False
    if math.isinf(number) or math.isinf(found):
        return number == found
    slack = ROUNDING if number == 0.0 else TINY
    return abs(found - number) <= max(rel_tol * abs(number), slack)


def _shown(value: Any) -> str:
    if isinstance(value, Exception):
        return f"an error ({value})"
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{', '.join(_shown(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value))}]"
    return str(value)
