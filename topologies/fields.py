"""Declarations of parameters: a field's check, its key and unit in a file, and its scaling follow from one line.

A part of a scenario is a frozen dataclass whose fields are declared here:

    target_delay_s: float = quantity(Dimension.DURATION, 3 * 3600.0)

The file's key is the field's name without the dimension's suffix (`target_delay = "3 h"`). To add a parameter, add a
field: reading, writing, checking and scaling follow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, field, fields, replace
from typing import Annotated, Any, TypeVar

from msgspec import NODEFAULT, Meta, Struct, structs

from topologies import keys, toml
from topologies.dimension import NUMBER, Dimension
from topologies.keys import Form, Kind
from topologies.keys import check as check
from topologies.keys import declared as declared
from topologies.keys import make_plain as make_plain
from topologies.keys import optional as optional
from topologies.tables import Table

P = TypeVar("P")


def quantity(
    dimension: Dimension,
    default: object = MISSING,
    *,
    low: float = 0.0,
    high: float = math.inf,
    above: bool = False,
    infinite: str | None = None,
) -> Any:
    """Declare a number; `infinite` is the word that means "no limit" in a file, if infinity makes sense."""
    return declared(keys.number(dimension, low, high, above=above, infinite=infinite), default)


def machine(default: float) -> Any:
    """Declare a number of the machine as it is: no key of a file, and no scale changes it."""
    return field(default=default, metadata=NUMBER)


def whole(low: int, high: int, default: object = MISSING, *, optional: bool = False) -> Any:
    """Declare an integer from low to high, or None if `optional`."""
    return declared(replace(keys.whole(low, high), optional=optional), default)


def choice(options: Sequence[str], default: object = MISSING) -> Any:
    """Declare one of some texts; any text, if none are given."""
    return declared(keys.choice(options) if options else keys.text(), default)


def overrides() -> Any:
    """Declare values of a policy's fields, None if they are left out; they are written with the policy's name."""
    of = Annotated[dict[str, bool | str], Meta(min_length=1)]
    return optional(Kind(of, "a table of fields of the policy, such as { vault = false }", takes="table"))


def flag(default: object = MISSING) -> Any:
    """Declare true or false."""
    return declared(keys.flag(), default)


def names(default: object = (), about: str = 'a list of hosts, such as ["h1", "h2"]') -> Any:
    """Declare a tuple of names: of hosts, unless `about` describes others."""
    return declared(keys.texts(about), default)


def numbers(default: tuple[float, ...]) -> Any:
    """Declare a tuple of numbers without dimension."""
    return declared(keys.numbers(), default)


def parts(of: type[Any], default: tuple[Any, ...] = ()) -> Any:
    """Declare a tuple of declared dataclasses."""
    form = Form(
        lambda value: isinstance(value, tuple) and all(isinstance(part, of) for part in value),
        lambda table, key: tuple(read(of, each) for each in table.tables(key)),
        lambda value: "\n".join(["[", *(f"    {toml.inline(pairs(part))}," for part in value), "]"]) if value else "[]",
        of,
    )
    return declared(Kind(of, f"a tuple of {of.__name__}", form=form, takes="list of tables"), default)


def read(of: type[P], table: Table, **given: object) -> P:
    """Return the part that a table describes; what is left out has its default. SpecError for anything else.

    `given` are the fields that are no keys.
    """
    values = values_of(of, table)
    table.done()
    return of(**given, **values)


def values_of(of: type[Any], table: Table, *, within_limits: bool = False) -> dict[str, Any]:
    """Return the fields of a part that a table holds, beside other keys. SpecError for a wrong value.

    `within_limits`: also for one outside its limits, which the part then need not check.
    """
    values = {}
    for name, kind, default in keys_of(of):
        key = kind.key(name)
        if table.has(key) or default is MISSING:
            values[name] = kind.read(table, key)
            if within_limits and (allowed := kind.wrong(values[name])):
                raise table.wrong(key, allowed)
    return values


def pairs(part: Any, *, defaults: bool = True) -> list[tuple[str, str]]:
    """Return (key, TOML text) of every field that has a value; without `defaults`, none that is the default."""
    found = ((kind, name, getattr(part, name), default) for name, kind, default in keys_of(type(part)))
    return [
        (kind.key(name), kind.text(value))
        for kind, name, value, default in found
        if value is not None and (defaults or value != default)
    ]


def keys_of(of: type[Any]) -> Iterator[tuple[str, Kind, object]]:
    """Return (field, kind, default) of every field of a part that is a key of files; MISSING: it has no default.

    A field of a message has its kind among what annotates its type.
    """
    if issubclass(of, Struct):
        for one in structs.fields(of):
            for kind in getattr(one.type, "__metadata__", ()):
                if isinstance(kind, Kind):
                    required = None if kind.optional else MISSING
                    made = one.default_factory() if one.default_factory is not NODEFAULT else required
                    yield one.name, kind, made if one.default is NODEFAULT else one.default
        return
    for each in fields(of):
        if "kind" in each.metadata:
            yield each.name, each.metadata["kind"], each.default
