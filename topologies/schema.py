"""JSON Schemas of files, so that editors complete keys and mark mistakes; of the declarations that the readers use.

They follow draft 7, as editors of TOML do. A schema knows neither other files nor what two keys mean together; the readers
check both. `experiments.inputs.schemas` has those of whole files.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from typing import Any

import msgspec

from topologies import toml
from topologies.dimension import Dimension
from topologies.fields import keys_of
from topologies.keys import Kind

MAX_NUMBER = 1e300  # of a limit that is none
ZERO = r"^[\s0.]*[^\s0-9.]"  # of a text with a unit


def meanings(of: type[Any]) -> dict[str, str]:
    """Return, for each field, the comment beside its declaration, or on the line above it."""
    source = inspect.getsource(of)
    lines, found = source.splitlines(), {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        above = lines[node.lineno - 2].strip()
        inside = lines[node.lineno - 1 : node.end_lineno]
        comments = [m[1] for line in inside if (m := re.search(r"  # (.*)$", line))]
        if above.startswith("# "):
            comments.insert(0, above[2:])
        found[node.target.id] = "; ".join(comments)
    return found


def table(properties: Mapping[str, Any], required: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """Return the schema of a table with these keys and no others."""
    found = {"type": "object", "properties": dict(properties), "additionalProperties": False, **more}
    return {**found, "required": list(required)} if required else found


def of_keys(*parts: type[Any]) -> dict[str, Any]:
    """Return the schema of a table that has the keys of all these parts."""
    properties, required = {}, []
    for of in parts:
        about = meanings(of)
        for name, kind, default in keys_of(of):
            key = kind.key(name)
            properties[key] = {"description": about.get(name) or kind.allowed, **of_kind(kind)}
            if default is MISSING:
                required.append(key)
            elif default not in (None, ""):
                properties[key]["default"] = toml.parse(f"value = {kind.text(default)}")["value"]
    return table(properties, required)


def of_kind(kind: Kind) -> dict[str, Any]:
    """Return the schema of the values that a key may have in a file."""
    if kind.form:
        found: dict[str, Any] = kind.form.schema(of_keys)
    elif kind.options is not None:
        found = {"enum": list(kind.options)}
    else:
        found = msgspec.json.schema(kind.of)
        if kind.dimension not in (None, Dimension.NUMBER):
            nothing = {"not": {"pattern": ZERO}} if found.get("exclusiveMinimum") == 0 else {}
            found = {"type": "string", "pattern": kind.dimension.units.pattern, **nothing}
        elif found.get("maximum", 0.0) > MAX_NUMBER:
            del found["maximum"]
        elif kind.each_once:
            found["uniqueItems"] = True
    other = [{"const": kind.infinite}] if kind.infinite else [{"type": "string", "minLength": 1}] if kind.single else []
    return {"anyOf": [found, *other]} if other else found
