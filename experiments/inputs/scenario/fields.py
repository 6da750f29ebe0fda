"""One declaration a parameter, from which follow its check, its key and unit in a file, and how it is scaled.

A part of a scenario is a frozen dataclass whose fields are declared here:

    target_delay_s: float = quantity(Dimension.DURATION, 3 * 3600.0)

The file's key is the field's name without the dimension's suffix (`target_delay = "3 h"`). To add a parameter, add a
field: reading, writing, checking and scaling follow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Protocol, TypeVar, cast

from experiments.inputs.scenario.law import (
    InverseLaw,
    law_of,
    law_text,
    quantity_text,
)
from topologies import toml
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.tables import Table, allowed_text
from topologies.units import plain

P = TypeVar("P")


class FieldKind(Protocol):
    """How a parameter is read, written and checked."""

    def key(self, name: str) -> str:
        """The key in a file of the field `name`."""

    def read(self, table: Table, key: str) -> Any:
        """The value in a file; SpecError."""

    def text(self, value: Any) -> str:
        """The value as TOML."""

    def wrong(self, value: Any) -> str | None:
        """What would be allowed, if this value is not."""


@dataclass(frozen=True, slots=True)
class _Plain:
    def key(self, name: str) -> str:
        return name


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with a dimension, from low to high (low itself excluded if `above`)."""

    dimension: Dimension
    low: float = 0.0
    high: float = math.inf
    above: bool = False
    infinite: str | None = None

    def key(self, name: str) -> str:
        return name.removesuffix(self.dimension.suffix)

    def read(self, table: Table, key: str) -> float:
        return table.quantity(key, self.dimension, infinite=self.infinite)

    def text(self, value: float) -> str:
        return toml.quote(str(self.infinite)) if value == math.inf else quantity_text(value, self.dimension)

    def wrong(self, value: object) -> str | None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and self._inside(cast(float, value)):
            return None
        return f"{allowed_text(self.dimension, self.infinite)}, {self._range()}"

    def _inside(self, value: float) -> bool:
        if value == math.inf:
            return self.infinite is not None
        return self.low < value <= self.high if self.above else self.low <= value <= self.high

    def _range(self) -> str:
        low = f"{'greater than' if self.above else 'at least'} {self.low:g}"
        return low if self.high == math.inf else f"{low} and at most {self.high:g}"


@dataclass(frozen=True, slots=True)
class _Random(_Plain):
    dimension: Dimension

    def read(self, table: Table, key: str) -> InverseLaw:
        table.take(key, 'a law such as { law = "exponential", mean = ... }')
        return law_of(table.table(key), self.dimension)

    def text(self, value: InverseLaw) -> str:
        return law_text(value, self.dimension)

    def wrong(self, value: object) -> str | None:
        return None if isinstance(value, InverseLaw) else "a Law"


@dataclass(frozen=True, slots=True)
class _Whole(_Plain):
    low: int
    high: int
    optional: bool

    def read(self, table: Table, key: str) -> int:
        return table.whole(key, self.low, self.high)

    def text(self, value: int) -> str:
        return str(value)

    def wrong(self, value: object) -> str | None:
        if value is None and self.optional:
            return None
        good = isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high
        return None if good else f"a whole number from {self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class _Choice(_Plain):
    options: tuple[str, ...]  # empty: any text

    def read(self, table: Table, key: str) -> str:
        return table.choice(key, self.options) if self.options else table.text(key)

    def text(self, value: str) -> str:
        return toml.quote(value)

    def wrong(self, value: object) -> str | None:
        good = isinstance(value, str) and value and (not self.options or value in self.options)
        return (
            None if good else (f"one of {', '.join(self.options)}" if self.options else "a text, not empty")
        )


@dataclass(frozen=True, slots=True)
class _Flag(_Plain):
    def read(self, table: Table, key: str) -> bool:
        value = table.take(key, "true or false")
        if not isinstance(value, bool):
            raise table.wrong(key, "true or false")
        return value

    def text(self, value: bool) -> str:
        return "true" if value else "false"

    def wrong(self, value: object) -> str | None:
        return None if isinstance(value, bool) else "true or false"


@dataclass(frozen=True, slots=True)
class _Names(_Plain):
    def read(self, table: Table, key: str) -> tuple[str, ...]:
        return table.texts(key, 'a list of hosts, such as ["h1", "h2"]')

    def text(self, value: Sequence[str]) -> str:
        return f"[{', '.join(map(toml.quote, value))}]"

    def wrong(self, value: object) -> str | None:
        return None if isinstance(value, tuple) and len(set(value)) == len(value) else "names, each only once"


@dataclass(frozen=True, slots=True)
class _Numbers(_Plain):
    dimension: Dimension = Dimension.NUMBER

    def read(self, table: Table, key: str) -> tuple[float, ...]:
        value = table.take(key, "a list of numbers")
        if not isinstance(value, list) or self.wrong(tuple(value)):
            raise table.wrong(key, "a list of at least one number, each finite and at least 0")
        return tuple(float(item) for item in value)

    def text(self, value: Sequence[float]) -> str:
        return f"[{', '.join(map(plain, value))}]"

    def wrong(self, value: object) -> str | None:
        good = (
            isinstance(value, tuple)
            and value
            and all(Quantity(self.dimension).wrong(v) is None for v in value)
        )
        return None if good else "at least one number, each finite and at least 0"


@dataclass(frozen=True, slots=True)
class _Parts(_Plain):
    of: type[Any]

    def read(self, table: Table, key: str) -> tuple[Any, ...]:
        return tuple(read(self.of, each) for each in table.tables(key))

    def text(self, value: Sequence[Any]) -> str:
        if not value:
            return "[]"
        lines = (f"    {toml.inline(pairs(part))}," for part in value)
        return "\n".join(["[", *lines, "]"])

    def wrong(self, value: object) -> str | None:
        good = isinstance(value, tuple) and all(isinstance(part, self.of) for part in value)
        return None if good else f"a tuple of {self.of.__name__}"


def _declare(kind: FieldKind, default: object) -> Any:
    metadata = {"kind": kind, "dimension": getattr(kind, "dimension", None)}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def quantity(
    dimension: Dimension,
    default: object = MISSING,
    *,
    low: float = 0.0,
    high: float = math.inf,
    above: bool = False,
    infinite: str | None = None,
) -> Any:
    """A number; `infinite` is the word that means "no limit" in a file, if infinity makes sense."""
    return _declare(Quantity(dimension, low, high, above, infinite), default)


def drawn(dimension: Dimension) -> Mapping[str, Any]:
    """Metadata of a field that is a `InverseLaw` of a quantity: `field(default=Law(...), metadata=drawn(Dimension.SIZE))`."""
    return {"kind": _Random(dimension), "dimension": dimension}


def whole(low: int, high: int, default: object = MISSING, *, optional: bool = False) -> Any:
    """An integer from low to high, or None if `optional`."""
    return _declare(_Whole(low, high, optional), default)


def choice(options: Sequence[str], default: object = MISSING) -> Any:
    """One of some texts; any text, if none are given."""
    return _declare(_Choice(tuple(options)), default)


def flag(default: object = MISSING) -> Any:
    """True or false."""
    return _declare(_Flag(), default)


def names(default: tuple[str, ...] = ()) -> Any:
    """A tuple of host names."""
    return _declare(_Names(), default)


def numbers(default: tuple[float, ...]) -> Any:
    """A tuple of numbers without dimension."""
    return _declare(_Numbers(), default)


def parts(of: type[Any], default: tuple[Any, ...] = ()) -> Any:
    """A tuple of declared dataclasses."""
    return _declare(_Parts(of), default)


def check(part: Any, path: str) -> None:
    """SpecError for the first field whose value is not allowed; call it in __post_init__."""
    for each in fields(part):
        kind, value = _kind(each), getattr(part, each.name)
        allowed = kind.wrong(value)
        if allowed is not None:
            raise SpecError(f"{path}.{kind.key(each.name)}", value, allowed)


def read(of: type[P], table: Table) -> P:
    """The part that a table describes; what is left out has its default. SpecError for anything else."""
    values = {}
    for each in fields(cast(Any, of)):
        kind = _kind(each)
        key = kind.key(each.name)
        if table.has(key) or each.default is MISSING:
            values[each.name] = kind.read(table, key)
    table.done()
    return of(**values)


def pairs(part: Any) -> list[tuple[str, str]]:
    """(key, TOML text) of every field that has a value."""
    found = ((_kind(each), each.name, getattr(part, each.name)) for each in fields(part))
    return [(kind.key(name), kind.text(value)) for kind, name, value in found if value is not None]


def _kind(each: Field[Any]) -> FieldKind:
    return cast(FieldKind, each.metadata["kind"])
