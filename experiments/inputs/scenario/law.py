"""Random laws of positive quantities, drawn by inverting their distribution function.

One uniform number makes one draw, whatever the law and its limits: streams of draws stay aligned when a parameter changes,
and a scaled law gives exactly the scaled draws. Limits truncate (the law *given* that the value lies between them), they
do not clip: no heap of values at the ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist
from typing import Any

from controller.numerics import gamma
from controller.numerics.portable_math import exp, expm1, log, log1p, rounded
from topologies import toml
from topologies.dimension import HELD, NUMBER, Dimension
from topologies.errors import SpecError
from topologies.fields import make_plain
from topologies.keys import Form, Kind, choice, number
from topologies.tables import Table

_NORMAL = NormalDist()
_SPREAD = number(Dimension.NUMBER)
MIN_SPREAD, MAX_SPREAD = 1e-3, 1000.0
_MIN_MASS = 1e-6  # of the law between its limits; with less, the draws would be rounding noise


@dataclass(frozen=True, slots=True)
class _Shape:
    """A law of typical value 1: its distribution function and the inverse, given the spread."""

    typical: str  # what the typical value is called: mean, median, value
    spread: str | None  # what the parameter is called
    below: Callable[[float, float], float]
    quantile: Callable[[float, float], float]


SHAPES: Mapping[str, _Shape] = {
    "deterministic": _Shape("value", None, lambda x, _: float(x >= 1.0), lambda _u, _s: 1.0),
    "exponential": _Shape("mean", None, lambda x, _: -expm1(-x), lambda u, _: -log1p(-u)),
    "gamma": _Shape(
        "mean",
        "shape",
        lambda x, k: rounded(gamma.both_sides(k, k * x)[0]),
        lambda u, k: rounded(gamma.quantile(k, u)) / k,
    ),
    "lognormal": _Shape(
        "median",
        "sigma",
        lambda x, s: rounded(_NORMAL.cdf(log(x) / s)) if x > 0.0 else 0.0,
        lambda u, s: exp(s * rounded(_NORMAL.inv_cdf(u))) if u > 0.0 else 0.0,
    ),
    "uniform": _Shape(
        "mean",
        "spread",
        lambda x, s: min(1.0, max(0.0, 0.5 + (x - 1.0) / (2.0 * s))),
        lambda u, s: 1.0 + s * (2.0 * u - 1.0),
    ),
}


@dataclass(frozen=True, slots=True)
class InverseLaw:
    """Law of a positive quantity; `shape` is a key of SHAPES.

    `typical` is its mean (lognormal: median; deterministic: value) before truncation to [minimum, maximum]; `spread` is
    gamma's shape, lognormal's sigma, or uniform's half width as a share of the mean.

    typical, minimum and maximum have the dimension of the field that holds the law.
    """

    shape: str
    typical: float = field(metadata=HELD)
    spread: float = field(default=1.0, metadata=NUMBER)
    minimum: float = field(default=0.0, metadata=HELD)
    maximum: float = field(default=math.inf, metadata=HELD)

    def __post_init__(self) -> None:
        make_plain(self)
        if self.shape not in SHAPES:
            raise SpecError("law", self.shape, f"one of {', '.join(SHAPES)}")
        shape = SHAPES[self.shape]
        numbers = self.typical, self.spread, self.minimum, self.maximum
        if not all(isinstance(each, int | float) for each in numbers):
            raise SpecError(f"law.{self.shape}", numbers, "numbers")
        if not 0.0 < self.typical < math.inf:
            raise SpecError(shape.typical, self.typical, "finite and greater than 0")
        most = 1.0 if self.shape == "uniform" else MAX_SPREAD
        if not MIN_SPREAD <= self.spread <= most:
            raise SpecError(shape.spread or "spread", self.spread, f"a number from 0.001 to {most:g}")
        if not 0.0 <= self.minimum <= self.maximum or math.isinf(self.minimum):
            raise SpecError("minimum", self.minimum, f"at least 0 and at most the maximum, {self.maximum:g}")
        low, high = self._mass()
        holds_something = high - low >= _MIN_MASS
        if self.shape == "deterministic":
            holds_something = self.minimum <= self.typical <= self.maximum
        if not holds_something:
            raise SpecError("minimum", self.minimum, "limits between which the law has some of its weight")

    def quantile(self, u: float) -> float:
        """Return the value below which a share u in [0, 1) of all draws lies: pass a uniform draw to sample."""
        shape = SHAPES[self.shape]
        low, high = self._mass()
        value = self.typical * shape.quantile(min(low + u * (high - low), 1.0 - 1e-16), self.spread)
        return min(max(value, self.minimum), self.maximum)

    def mean(self) -> float:
        """Return the mean after truncation, by the midpoint rule over 4096 quantiles (to about 0.1 %)."""
        return _mean(self)

    def _mass(self) -> tuple[float, float]:
        """Return the probabilities below the minimum and below the maximum, before truncation."""
        return _mass(self)


@lru_cache(maxsize=256)
def _mean(law: InverseLaw) -> float:
    steps = 4096
    return math.fsum(law.quantile((i + 0.5) / steps) for i in range(steps)) / steps


@lru_cache(maxsize=256)
def _mass(law: InverseLaw) -> tuple[float, float]:
    below = SHAPES[law.shape].below
    low = below(law.minimum / law.typical, law.spread) if law.minimum > 0.0 else 0.0
    return low, below(law.maximum / law.typical, law.spread) if law.maximum < math.inf else 1.0


def law_of(table: Table, dimension: Dimension) -> InverseLaw:
    """Return the law that a table of a scenario file describes."""
    held = number(dimension)
    name = choice(tuple(SHAPES)).read(table, "law")
    shape = SHAPES[name]
    typical = held.read(table, shape.typical)
    spread = _SPREAD.read(table, shape.spread) if shape.spread else 1.0
    minimum, maximum = held.read(table, "minimum", 0.0), held.read(table, "maximum", math.inf)
    table.done()
    try:
        return InverseLaw(name, typical, spread, minimum, maximum)
    except SpecError as error:
        raise SpecError(table.path(error.key), error.value, error.allowed) from None


def law_text(law: InverseLaw, dimension: Dimension) -> str:
    """Return the law as an inline table; `law_of` gives exactly the same one back."""
    shape, held = SHAPES[law.shape], number(dimension)
    pairs = [("law", toml.quote(law.shape)), (shape.typical, held.text(law.typical))]
    if shape.spread:
        pairs.append((shape.spread, _SPREAD.text(law.spread)))
    if law.minimum > 0.0:
        pairs.append(("minimum", held.text(law.minimum)))
    if law.maximum < math.inf:
        pairs.append(("maximum", held.text(law.maximum)))
    return toml.inline(pairs)


def drawn(dimension: Dimension) -> Mapping[str, Any]:
    """Return metadata of a field that is an `InverseLaw`: `field(default=InverseLaw(...), metadata=drawn(Dimension.SIZE))`."""
    form = Form(
        lambda value: isinstance(value, InverseLaw),
        lambda table, key: law_of(table.table(key), dimension),
        lambda law: law_text(law, dimension),
        dimension,
    )
    allowed = 'a law such as { law = "exponential", mean = ... }'
    takes = f"law of a {dimension.name.lower()}"
    return {"kind": Kind(InverseLaw, allowed, form=form, takes=takes), "dimension": dimension}
