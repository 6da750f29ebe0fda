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
from typing import Any, TypeVar, cast

from experiments.inputs.scenario.law import InverseLaw, law_of, law_text
from experiments.inputs.scenario.plain import make_plain
from topologies import toml
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.keys import Choice, Flag, Kind, Numbers, Quantity, Text, Texts, Whole
from topologies.tables import NOTHING, Table

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Random(Kind):
    """A law of a quantity, in a file a table."""

    dimension: Dimension

    def allowed(self) -> str:
        return 'a law such as { law = "exponential", mean = ... }'

    def wrong(self, value: object) -> str | None:
        return None if isinstance(value, InverseLaw) else "a Law"

    def read(self, table: Table, key: str, default: object = NOTHING) -> InverseLaw:
        table.take(key, self.allowed())
        return law_of(table.table(key), self.dimension)

    def text(self, value: InverseLaw) -> str:
        return law_text(value, self.dimension)


@dataclass(frozen=True, slots=True)
class Parts(Kind):
    """A tuple of declared dataclasses, in a file a list of tables."""

    of: type[Any]

    def allowed(self) -> str:
        return f"a tuple of {self.of.__name__}"

    def wrong(self, value: object) -> str | None:
        good = isinstance(value, tuple) and all(isinstance(part, self.of) for part in value)
        return None if good else self.allowed()

    def read(self, table: Table, key: str, default: object = NOTHING) -> tuple[Any, ...]:
        return tuple(read(self.of, each) for each in table.tables(key))

    def text(self, value: Sequence[Any]) -> str:
        if not value:
            return "[]"
        lines = (f"    {toml.inline(pairs(part))}," for part in value)
        return "\n".join(["[", *lines, "]"])


@dataclass(frozen=True, slots=True)
class Perhaps(Kind):
    """A value of another kind, or None where the key is left out."""

    of: Kind

    @property
    def dimension(self) -> Dimension | None:
        """The dimension of the value."""
        return getattr(self.of, "dimension", None)

    def key(self, name: str) -> str:
        return self.of.key(name)

    def allowed(self) -> str:
        return self.of.allowed()

    def wrong(self, value: object) -> str | None:
        return None if value is None else self.of.wrong(value)

    def read(self, table: Table, key: str, default: object = NOTHING) -> Any:
        return self.of.read(table, key, default)

    def text(self, value: Any) -> str:
        return self.of.text(value)


@dataclass(frozen=True, slots=True)
class Overrides(Kind):
    """Values of a policy's fields, in a file a table."""

    def allowed(self) -> str:
        return "a table of fields of the policy, such as { vault = false }"

    def wrong(self, value: object) -> str | None:
        good = isinstance(value, Mapping) and all(isinstance(each, bool | str) for each in value.values())
        return None if good and value else self.allowed()

    def read(self, table: Table, key: str, default: object = NOTHING) -> Mapping[str, bool | str]:
        value = table.take(key, self.allowed())
        if self.wrong(value) is not None:
            raise table.wrong(key, self.allowed())
        return cast(Mapping[str, bool | str], value)

    def text(self, value: Mapping[str, bool | str]) -> str:
        raise AssertionError("overrides are in the policy's name")


def _declare(kind: Kind, default: object) -> Any:
    metadata = {"kind": kind, "dimension": getattr(kind, "dimension", None)}
    if isinstance(kind, Numbers):
        metadata["dimension"] = Dimension.NUMBER
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
    return {"kind": Random(dimension), "dimension": dimension}


def whole(low: int, high: int, default: object = MISSING, *, optional: bool = False) -> Any:
    """An integer from low to high, or None if `optional`."""
    return _declare(Whole(low, high, optional), default)


def optional(kind: Kind) -> Any:
    """A value of this kind, None if it is left out."""
    return _declare(Perhaps(kind), None)


def choice(options: Sequence[str], default: object = MISSING) -> Any:
    """One of some texts; any text, if none are given."""
    return _declare(Choice(tuple(options)) if options else Text(), default)


def overrides() -> Any:
    """Values of a policy's fields, None if it is left out."""
    return _declare(Perhaps(Overrides()), None)


def flag(default: object = MISSING) -> Any:
    """True or false."""
    return _declare(Flag(), default)


def names(default: object = (), about: str = 'a list of hosts, such as ["h1", "h2"]') -> Any:
    """A tuple of names, of hosts if nothing else is said."""
    return _declare(Texts(about), default)


def numbers(default: tuple[float, ...]) -> Any:
    """A tuple of numbers without dimension."""
    return _declare(Numbers(), default)


def parts(of: type[Any], default: tuple[Any, ...] = ()) -> Any:
    """A tuple of declared dataclasses."""
    return _declare(Parts(of), default)


def check(part: Any, path: str) -> None:
    """SpecError for the first field whose value is not allowed; call it in __post_init__. Numbers of numpy's become Python's
    (`make_plain`). Fields that are not declared here are not checked."""
    make_plain(part)
    for each in fields(part):
        kind, value = each.metadata.get("kind"), getattr(part, each.name)
        if kind is None:
            continue
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


def _kind(each: Field[Any]) -> Kind:
    return cast(Kind, each.metadata["kind"])
