"""JSON Schemas of campus, scenario and job files. docs/reference has copies; `reclaimnet schema KIND` prints one."""

from __future__ import annotations

from typing import Any

from experiments.inputs.scenario.files import CALENDARS, SECTIONS
from experiments.inputs.scenario.parts import BackgroundLaw, Jobs, LinkEvent, ResearchFlow
from experiments.inputs.scenario.scenario import MAX_SEED
from experiments.inputs.scenario.user_jobs import AT
from testbed.messages import JobSpec
from testbed.program import Program
from topologies import files, keys, schema, spec
from topologies.dimension import Dimension

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
        own, with_cable = schema.of_keys(*parts), schema.of_keys(*parts, spec.Link)
        return {**with_cable, "required": own["required"], "dependencies": {"link_to": ["rate"]}, **more}

    coordinator = {"properties": {"role": {"const": "coordinator"}}, "required": ["role"]}
    with_gpus = {"anyOf": [coordinator, {"required": ["gpu_model"]}]}
    places = (files.Place, spec.Limits)
    cable = schema.of_keys(files.Ends, spec.Link)
    cable["properties"]["between"] |= {"minItems": 2, "maxItems": 2}
    found = schema.of_keys(files.Head)
    found["properties"] |= {
        "gpu_models": {"type": "object", "additionalProperties": schema.of_keys(spec.GpuModel)},
        "research_reserve": schema.of_keys(spec.ResearchReserve),
        "switches": _list_of(node(spec.Switch, files.Uplinks)),
        "hosts": _list_of(node(files.OneHost, *places, **with_gpus), minItems=1),
        "groups": _list_of({**schema.of_keys(files.Group, *places, spec.Link), **with_gpus}),
        "links": _list_of(cable),
    }
    return {**found, "anyOf": [{"required": ["hosts"]}, {"required": ["groups"]}]}


def _job() -> dict[str, Any]:
    found, program = schema.of_keys(JobSpec), schema.of_keys(Program)["properties"]
    found["properties"] |= {**program, "environment": _SCALARS, "params": _SCALARS}
    of_programs = {key: ["command"] for key in (*program, "environment") if key != "command"}
    return {**found, "dependencies": of_programs, "not": {"required": ["command", "params"]}}


def _scenario() -> dict[str, Any]:
    own = _job()
    own["properties"]["at"] = {"description": "when it is submitted", **schema.of_kind(AT)}
    jobs, of_user = schema.of_keys(Jobs), _list_of({"$ref": "#/definitions/job"})
    jobs["properties"]["own"] = of_user
    factor = {"type": "number", "exclusiveMinimum": 0}
    properties = {
        "name": _TEXT,
        "campus": {"anyOf": [_TEXT, _campus()], "description": "a table, a campus file, example:NAME or module:NAME"},
        "seed": schema.of_kind(keys.whole(0, MAX_SEED)),
        "duration": schema.of_kind(keys.number(Dimension.DURATION)),
        "equal_speeds": {"type": "boolean", "description": "all GPUs compute alike"},
        "lent": schema.of_kind(CALENDARS),
        "scale": schema.table({"bytes": factor, "time": factor}),
        **{key: schema.of_keys(part) for key, part in SECTIONS.items()},
        "jobs": {"anyOf": [jobs, of_user]},
        "research": _list_of(schema.of_keys(ResearchFlow)),
        "events": _list_of(schema.of_keys(LinkEvent)),
        "background": schema.of_keys(BackgroundLaw),
    }
    return schema.table(properties, ["name", "campus"], definitions={"job": own})
