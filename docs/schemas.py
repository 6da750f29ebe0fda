"""JSON Schemas of campus, scenario and job files, so that editors complete keys and mark mistakes.

They follow from the declarations that the readers use, in draft 7, as editors of TOML do. A schema knows neither other files nor
what two keys mean together; the readers check both. `generate.py` writes them.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from typing import Any

import msgspec

from experiments.inputs.scenario.files import CALENDARS
from experiments.inputs.scenario.law import MAX_SPREAD, MIN_SPREAD, SHAPES
from experiments.inputs.scenario.parts import BackgroundLaw, Jobs, LinkEvent, ResearchFlow
from experiments.inputs.scenario.scenario import MAX_SEED, SECTIONS
from experiments.inputs.scenario.user_jobs import AT
from testbed.messages import JobSpec
from testbed.program import Program
from topologies import files, keys, spec, toml
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
        found = _of_form(kind.form.inner)
    elif kind.options is not None:
        found = {"enum": list(kind.options)}
    else:
        found = msgspec.json.schema(kind.of)
        if kind.dimension not in (None, Dimension.NUMBER):
            nothing = {"not": {"pattern": ZERO}} if found.get("exclusiveMinimum") == 0 else {}
            found = {"type": "string", "pattern": pattern(kind.dimension), **nothing}
        elif found.get("maximum", 0.0) > MAX_NUMBER:
            del found["maximum"]
        elif kind.each_once:
            found["uniqueItems"] = True
    other = [{"const": kind.infinite}] if kind.infinite else [{"type": "string", "minLength": 1}] if kind.single else []
    return {"anyOf": [found, *other]} if other else found


def pattern(dimension: Dimension) -> str:
    """Return the texts that a dimension's `parse` takes, as a regular expression."""
    units = "|".join(re.escape(unit) for unit in (*dimension.units.written, *dimension.units.only_read))
    return rf"^\s*[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?\s*({units})\s*$"


def _of_form(inner: Any) -> dict[str, Any]:
    if isinstance(inner, Dimension):
        return law_schema(inner)
    return msgspec.json.schema(inner.of) if isinstance(inner, Kind) else {"type": "array", "items": of_keys(inner)}


def law_schema(dimension: Dimension) -> dict[str, Any]:
    """Return the JSON Schema of what `law_of` reads."""
    held, typical = (of_kind(keys.number(dimension, above=above)) for above in (False, True))
    laws = []
    spread = {"type": "number", "minimum": MIN_SPREAD, "maximum": MAX_SPREAD}
    for name, shape in SHAPES.items():
        own = [shape.typical, *((shape.spread,) if shape.spread else ())]
        values = dict.fromkeys(("minimum", "maximum"), held) | {shape.typical: typical} | dict.fromkeys(own[1:], spread)
        laws.append(table({"law": {"const": name}, **values}, ["law", *own]))
    return {"oneOf": laws}


KINDS = ("campus", "scenario", "job")
DRAFT = "http://json-schema.org/draft-07/schema#"
_TEXT = {"type": "string", "minLength": 1}
_SCALARS = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}


def schema_of(kind: str) -> dict[str, Any]:
    """Return the schema of a kind of file, one of KINDS."""
    whole = {"campus": _campus, "scenario": _scenario, "job": _job}[kind]()
    return {"$schema": DRAFT, "title": f"A {kind} of ReclaimNet testbed", **whole}


def _list_of(part: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": part, **more}


def _campus() -> dict[str, Any]:
    def node(*parts: type[Any], **more: Any) -> dict[str, Any]:
        """Return a node whose cable, if it has `link_to`, is described in it."""
        own, with_cable = of_keys(*parts), of_keys(*parts, spec.Link)
        return {**with_cable, "required": own["required"], "dependencies": {"link_to": ["rate"]}, **more}

    coordinator = {"properties": {"role": {"const": "coordinator"}}, "required": ["role"]}
    with_gpus = {"anyOf": [coordinator, {"required": ["gpu_model"]}]}
    places = (files.Place, spec.HostLimits)
    cable = of_keys(files.Ends, spec.Link)
    cable["properties"]["between"] |= {"minItems": 2, "maxItems": 2}
    found = of_keys(files.Head)
    found["properties"] |= {
        "gpu_models": {"type": "object", "additionalProperties": of_keys(spec.GpuModel)},
        "research_reserve": of_keys(spec.ResearchReserve),
        "switches": _list_of(node(spec.Switch, files.Uplinks)),
        "hosts": _list_of(node(files.OneHost, *places, **with_gpus), minItems=1),
        "groups": _list_of({**of_keys(files.Group, *places, spec.Link), **with_gpus}),
        "links": _list_of(cable),
    }
    return {**found, "anyOf": [{"required": ["hosts"]}, {"required": ["groups"]}]}


def _job() -> dict[str, Any]:
    found, program = of_keys(JobSpec), of_keys(Program)["properties"]
    found["properties"] |= {**program, "environment": _SCALARS, "params": _SCALARS}
    of_programs = {key: ["command"] for key in (*program, "environment") if key != "command"}
    return {**found, "dependencies": of_programs, "not": {"required": ["command", "params"]}}


def _scenario() -> dict[str, Any]:
    own = _job()
    own["properties"]["at"] = {"description": "when it is submitted", **of_kind(AT)}
    jobs, of_user = of_keys(Jobs), _list_of({"$ref": "#/definitions/job"})
    jobs["properties"]["own"] = of_user
    factor = {"type": "number", "exclusiveMinimum": 0}
    properties = {
        "name": _TEXT,
        "campus": {"anyOf": [_TEXT, _campus()], "description": "a table, a campus file, example:NAME or module:NAME"},
        "seed": of_kind(keys.whole(0, MAX_SEED)),
        "duration": of_kind(keys.number(Dimension.DURATION)),
        "equal_speeds": {"type": "boolean", "description": "all GPUs compute alike"},
        "lent": of_kind(CALENDARS),
        "scale": table({"bytes": factor, "time": factor}),
        **{key: of_keys(part) for key, part in SECTIONS.items()},
        "jobs": {"anyOf": [jobs, of_user]},
        "research": _list_of(of_keys(ResearchFlow)),
        "events": _list_of(of_keys(LinkEvent)),
        "background": of_keys(BackgroundLaw),
    }
    return table(properties, ["name", "campus"], definitions={"job": own})
