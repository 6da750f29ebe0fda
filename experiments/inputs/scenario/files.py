"""Scenario files: TOML in, TOML out, with the errors and the units of campus files.

The section `[campus]` is a campus; `campus = "example:campus54"`, or the path of a campus file seen from the
scenario's, may stand in its place. With `equal_speeds = true` its GPUs all compute alike, as in paper A. `[lent]` has calendars
of hosts, or of all in a building. All others may
be left out: `[queue]`, `[protocol]`, `[jobs]` (or `[[jobs]]`),
`[owners]`, `[trust]`, `[[research]]`, `[[events]]`, `[background]`, `[scale]`. The keys are described beside their declarations:
`controller.core.parameters`, `parts.py`, `user_jobs.py` and `owners.py`. Without a section
`[background]` there is none; with an empty one it is paper A's.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from experiments.inputs.scenario.parts import BackgroundLaw, Jobs, LinkEvent, ResearchFlow
from experiments.inputs.scenario.scenario import MAX_SEED, SECTIONS, Scenario
from experiments.inputs.scenario.user_jobs import read_user_jobs, toml_of
from topologies import fields, files, keys, reading, toml
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.scale import Scale
from topologies.tables import Table

EXAMPLES = Path(__file__).parents[2] / "examples"
_DURATION = keys.number(Dimension.DURATION)
CALENDARS = keys.Kind(dict[str, str], 'a table by host or building, such as { h1 = "18:00-08:00, weekends" }')
_FACTOR = keys.number(Dimension.NUMBER, about="a number greater than 0")


def load(path: str | Path) -> Scenario:
    """Return the scenario of a file, or of "example:NAME". SpecError names file, key, value and the allowed ones."""
    if not isinstance(path, str | Path):
        raise SpecError("scenario", path, 'a Scenario, a scenario file, or "example:NAME"')
    file = files.find(path, EXAMPLES)
    return loads(reading.read_text(file, "a scenario file (TOML)"), str(path), file.parent)


def loads(text: str, source: str | None = None, folder: Path | None = None) -> Scenario:
    """Return the scenario of a TOML text; `folder` is where the paths of campus files begin."""
    try:
        return scenario_of(toml.parse(text), folder or Path())
    except SpecError as error:
        raise error if error.source else error.within(source or "text") from None


def dumps(scenario: Scenario) -> str:
    """Return the scenario as TOML, its campus in full; `loads` gives back an equal one."""
    lines = [
        f"name = {toml.quote(scenario.name)}",
        f"seed = {scenario.seed}",
        f"duration = {_DURATION.text(scenario.duration_s)}",
        "",
        "[scale]",
        f"bytes = {_FACTOR.text(scenario.scale.bytes)}",
        f"time = {_FACTOR.text(scenario.scale.time)}",
    ]
    sections = [(f"[{key}]", getattr(scenario, key)) for key in SECTIONS]
    if scenario.user_jobs:
        sections = [each for each in sections if each[0] != "[jobs]" or scenario.generates_jobs]
    sections += [("[[research]]", flow) for flow in scenario.research]
    sections += [("[[events]]", event) for event in scenario.events]
    if scenario.background is not None:
        sections.append(("[background]", scenario.background))
    for head, part in sections:
        lines += ["", head, *(f"{name} = {text}" for name, text in fields.pairs(part))]
    head = "[[jobs.own]]" if scenario.generates_jobs else "[[jobs]]"
    for own in scenario.user_jobs:
        if own.job.given is not None:
            lines += ["", head, *toml_of(own.at_s, own.job.given)]
    lines += ["", "[campus]", *files.campus_lines(scenario.campus, "campus.")]
    return "\n".join(lines) + "\n"


def examples() -> tuple[str, ...]:
    """Return the names of the scenario files that the package brings; `load("example:NAME")` reads one. Sweeps are left out."""
    names = reading.example_names(EXAMPLES)
    return tuple(
        name for name in names if "scenario" not in tomllib.loads((EXAMPLES / f"{name}.toml").read_text("utf-8"))
    )


def scenario_of(tables: dict[str, Any], folder: Path) -> Scenario:
    """Return the scenario of what a TOML text holds. SpecError as `loads`, without a source."""
    table = Table(tables)
    name = keys.text("the name of the scenario").read(table, "name")
    campus = table.take("campus", 'a table [campus], or the path of a campus file, or "example:NAME", or "module:NAME"')
    campus = files.load(campus, folder) if isinstance(campus, str) else files.campus_of(table.table("campus"))
    if keys.flag().read(table, "equal_speeds", False):
        campus = campus.of_equal_speeds
    campus = campus.with_calendars(CALENDARS.read(table, "lent", {}))
    seed = keys.whole(0, MAX_SEED).read(table, "seed", Scenario.seed)
    duration_s = _DURATION.read(table, "duration", Scenario.duration_s)
    if isinstance(table.take("jobs", "a table [jobs], or a list of jobs [[jobs]]", {}), list):
        jobs, own = Jobs(count=0), list(table.tables("jobs"))
    else:
        generated = table.table("jobs")
        own = list(generated.tables("own"))
        jobs = fields.read(Jobs, generated)
    user_jobs = read_user_jobs(own, folder, jobs.dirty_fraction)
    sections: dict[str, Any] = {
        key: fields.read(part, table.table(key)) for key, part in SECTIONS.items() if part is not Jobs
    }
    research = tuple(fields.read(ResearchFlow, each) for each in table.tables("research"))
    events = tuple(fields.read(LinkEvent, each) for each in table.tables("events"))
    background = fields.read(BackgroundLaw, table.table("background")) if table.has("background") else None
    scaled = table.table("scale")
    scale = Scale(**{key: _FACTOR.read(scaled, key, 1.0) for key in ("bytes", "time")})
    scaled.done()
    table.done()
    parts = {
        **sections,
        "jobs": jobs,
        "user_jobs": user_jobs,
        "research": research,
        "events": events,
        "background": background,
    }
    return Scenario(name, campus, seed, duration_s, scale=scale, **parts)
