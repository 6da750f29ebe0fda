"""Declarations of parameters: a field's check, its key and unit in a file, and its scaling follow from one line.

A part of a scenario is a frozen dataclass whose fields are declared here:

    target_delay_s: float = quantity(Dimension.DURATION, 3 * 3600.0)

The file's key is the field's name without the dimension's suffix (`target_delay = "3 h"`). To add a parameter, add a
field: reading, writing, checking and scaling follow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, field, fields, replace
from typing import Annotated, Any, TypeVar, cast

from msgspec import Meta

from experiments.inputs.scenario.law import InverseLaw, law_of, law_text
from experiments.inputs.scenario.plain import make_plain
from topologies import keys, toml
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.keys import Form, Kind
from topologies.tables import Table

P = TypeVar("P")


def declared(kind: Kind, default: object = MISSING) -> Any:
    """Declare a field of this kind."""
    metadata = {"kind": kind, "dimension": kind.dimension}
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
    """Declare a number; `infinite` is the word that means "no limit" in a file, if infinity makes sense."""
    return declared(keys.number(dimension, low, high, above=above, infinite=infinite), default)


def drawn(dimension: Dimension) -> Mapping[str, Any]:
    """Return metadata of a field that is an `InverseLaw`: `field(default=InverseLaw(...), metadata=drawn(Dimension.SIZE))`."""
    form = Form(
        lambda value: isinstance(value, InverseLaw),
        lambda table, key: law_of(table.table(key), dimension),
        lambda law: law_text(law, dimension),
    )
    allowed = 'a law such as { law = "exponential", mean = ... }'
    takes = f"law of a {dimension.name.lower()}"
    return {"kind": Kind(InverseLaw, allowed, form=form, takes=takes), "dimension": dimension}


def whole(low: int, high: int, default: object = MISSING, *, optional: bool = False) -> Any:
    """Declare an integer from low to high, or None if `optional`."""
    return declared(replace(keys.whole(low, high), optional=optional), default)


def optional(kind: Kind) -> Any:
    """Declare a value of this kind, None if it is left out."""
    return declared(replace(kind, optional=True), None)


def choice(options: Sequence[str], default: object = MISSING) -> Any:
    """Declare one of some texts; any text, if none are given."""
    return declared(keys.choice(tuple(map(str, options))) if options else keys.text(), default)


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
        lambda value: (
            "\n".join(["[", *(f"    {toml.inline(pairs(part))}," for part in value), "]"]) if value else "[]"
        ),
    )
    return declared(Kind(of, f"a tuple of {of.__name__}", form=form, takes="list of tables"), default)


def check(part: Any, path: str) -> None:
    """Raise SpecError for the first field whose value is not allowed; call it in __post_init__.

    Numbers of numpy's become Python's (`make_plain`). Fields that are not declared here are not checked.
    """
    make_plain(part)
    for each in fields(part):
        kind, value = each.metadata.get("kind"), getattr(part, each.name)
        if kind is not None and (allowed := kind.wrong(value)) is not None:
            raise SpecError(f"{path}.{kind.key(each.name)}", value, allowed)


def read(of: type[P], table: Table) -> P:
    """Return the part that a table describes; what is left out has its default. SpecError for anything else."""
    values = {}
    for each in fields(cast(Any, of)):
        kind = _kind(each)
        key = kind.key(each.name)
        if table.has(key) or each.default is MISSING:
            values[each.name] = kind.read(table, key)
    table.done()
    return of(**values)


def pairs(part: Any) -> list[tuple[str, str]]:
    """Return (key, TOML text) of every field that has a value."""
    found = ((_kind(each), each.name, getattr(part, each.name)) for each in fields(part))
    return [(kind.key(name), kind.text(value)) for kind, name, value in found if value is not None]


def _kind(each: Field[Any]) -> Kind:
    return cast(Kind, each.metadata["kind"])
