"""Machine code for the inner loops of decisions: numba compiles them at their first call and keeps the result beside the source.

numba looks at one file to see whether what it kept is out of date, but what is kept includes functions of other
files. So the folder is named by the text of all files that have compiled functions: after a change in one, all are
made again.

Additions are made in the order of the text, and no two operations are fused, so every machine has the same bits. So
has plain Python, where numba (extra `fast`) is not installed: two months of a campus take three times as long. Division by zero
gives an infinity or NaN, as in numpy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from bpf.caches import fingerprint, kept_beside
from controller.numerics.arrays import Floats
from controller.numerics.portable_math import PER_LN2, exp_of_parts, polynomial

numba: Any
try:
    numba = import_module("numba")
except ModuleNotFoundError:
    numba = None

MAX_EXPONENT = 700.0  # of what e is raised to
F = TypeVar("F", bound=Callable[..., object])

HERE = Path(__file__).parent
# files with compiled functions, and what those are made of
SOURCES = (
    HERE / "portable_math.py",
    HERE / "jit.py",
    *(file for file in sorted((HERE.parent / "core").rglob("*.py")) if "@compiled" in file.read_text("utf-8")),
)
MADE: list[Callable[..., object]] = []  # all of them
FOLDER = ""  # that keeps them; none without numba
if numba is not None:
    # the user's choice (NUMBA_CACHE_DIR); else beside the source, or where that cannot be written, in a private place
    _KEPT = numba.config.CACHE_DIR or kept_beside(HERE / "__pycache__")
    FOLDER = f"{_KEPT}/compiled-{fingerprint(SOURCES, numba.__version__)}"
    numba.config.CACHE_DIR = FOLDER
    for _function in (polynomial, exp_of_parts):
        numba.extending.register_jitable(_function)


def compiled(function: F) -> F:
    """Return the same function in machine code, if numba is here; it may call others that are compiled."""
    if numba is not None:
        made = cast(F, numba.njit(cache=True, error_model="numpy")(function))
        MADE.append(made)
        return made

    @functools.wraps(function)
    def interpreted(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return _plain(function(*arguments))

    return cast(F, interpreted)


def _plain(value: Any) -> Any:
    """Return Python's numbers for numpy's, as machine code returns them."""
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


@compiled
def exp(x: float) -> float:
    """Return `portable_math.exp` of a number between its limits."""
    times = np.rint(x * PER_LN2)
    return math.ldexp(exp_of_parts(x, times), int(times))


@compiled
def total(numbers: Floats) -> float:
    """Return the sum of the numbers, added one after another, which numpy's own sum does not."""
    return float(np.cumsum(numbers)[-1]) if len(numbers) else 0.0


@compiled
def survivals(expected: Floats) -> Floats:
    """Return exp(-x) of numbers of 0 or more; 0 where hardly anything is left."""
    answer = np.zeros(len(expected))
    for place in range(len(expected)):
        if expected[place] < MAX_EXPONENT:
            answer[place] = exp(-expected[place])
    return answer
