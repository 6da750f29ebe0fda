"""Ablations: `reclaimnet+vault=false` is the row `reclaimnet` with another value of its field `vault`.

The name holds every override, so that it distinguishes runs, sweeps and results. A switch is true or false. Any other
field, such as a function, has the value of another row, by that row's name: `reclaimnet+plan=no-p1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from topologies.errors import SpecError, nearest

Row = TypeVar("Row")  # a `Policy`
SIGN = "+"  # stands before each override in a name


def base_of(name: str) -> str:
    """Return the name of the row that a name's overrides apply to."""
    return name.partition(SIGN)[0]


def with_overrides(name: str, values: Mapping[str, object]) -> str:
    """Return the name of a row with these overrides, in order of their fields; an override that it has is replaced."""
    base, *given = name.split(SIGN)
    merged = {
        **dict(_pair(each) for each in given),
        **{field: str(value).lower() if isinstance(value, bool) else str(value) for field, value in values.items()},
    }
    return SIGN.join([base, *(f"{field}={value}" for field, value in sorted(merged.items()))])


def overridden(name: str, rows: Mapping[str, Row]) -> Row:
    """Return the row of a name with overrides, whose base is one of these rows.

    SpecError names the override that is wrong and states what is allowed: a field, a value, or a row that cannot be.
    """
    row: Any = rows[base_of(name)]
    names = [each.name for each in fields(row) if each.name != "about"]
    changes: dict[str, Any] = {}
    for field, value in map(_pair, name.split(SIGN)[1:]):
        key = f"override.{field}"
        if field not in names:
            allowed = f"no field of a policy{nearest(field, names)}; allowed here: {', '.join(names)}"
            raise SpecError(key, value, allowed)
        if isinstance(getattr(row, field), bool):
            if value not in ("true", "false"):
                raise SpecError(key, value, "true or false")
            changes[field] = value == "true"
        elif value in rows:
            changes[field] = getattr(rows[value], field)
        else:
            allowed = f"a system, whose {field} is taken: one of {', '.join(rows)}{nearest(value, rows)}"
            raise SpecError(key, value, allowed)
    try:
        changed: Row = replace(row, **changes)
        return changed
    except ValueError as error:
        raise SpecError("override", name, str(error)) from None


def _pair(text: str) -> tuple[str, str]:
    field, sign, value = text.partition("=")
    if not (sign and field and value):
        raise SpecError("override", text, "FIELD=VALUE, such as vault=false")
    return field.strip(), value.strip()


def parse_overrides(texts: Iterable[str]) -> dict[str, str]:
    """Return the field and value of each `FIELD=VALUE`. SpecError: another form."""
    return dict(map(_pair, texts))
