"""Scenario files: TOML in, TOML out, with the errors and the units of campus files.

Sections: `[campus]` (a campus, or `campus = "example:campus54"`, or the path of a campus file, seen from the scenario's),
`[queue]`, `[protocol]`, `[jobs]`, `[owners]`, `[[research]]`, `[background]`, `[scale]`; all but the campus may be left
out. What the keys mean is said where they are declared: `parts.py`, `owners.py` and `background.py`. Without a section
`[background]` there is none; with an empty one it is paper A's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.inputs.scenario import fields
from experiments.inputs.scenario.background import BackgroundLaw
from experiments.inputs.scenario.owners import Owners
from experiments.inputs.scenario.parts import (
    Jobs,
    Protocol,
    Queue,
    ResearchFlow,
)
from experiments.inputs.scenario.scenario import MAX_SEED, Scenario
from topologies import files, toml
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.scale import Scale
from topologies.spec import Campus
from topologies.tables import Table
from topologies.units import plain

EXAMPLES = Path(__file__).parents[2] / "examples"
_SECTIONS: dict[str, type[Any]] = {"queue": Queue, "protocol": Protocol, "jobs": Jobs, "owners": Owners}


def load(path: str | Path) -> Scenario:
    """The scenario of a file, or of "example:NAME". SpecError says file, key, value and what is allowed."""
    file = files.find(path, EXAMPLES)
    return loads(toml.read_text(file, "a scenario file (TOML)"), str(path), file.parent)


def loads(text: str, source: str | None = None, folder: Path | None = None) -> Scenario:
    """The scenario of a TOML text; `folder` is where the paths of campus files begin."""
    try:
        return _scenario(Table(toml.parse(text)), folder or Path())
    except SpecError as error:
        raise error if error.source else error.within(source or "text") from None


def dumps(scenario: Scenario) -> str:
    """The scenario as TOML, its campus in full; `loads` gives back an equal one."""
    return "\n".join(_lines(scenario)) + "\n"


def examples() -> tuple[str, ...]:
    """The names of the scenario files that the package brings; `load("example:NAME")` reads one."""
    return toml.example_names(EXAMPLES)


def _scenario(table: Table, folder: Path) -> Scenario:
    name = table.text("name", "the name of the scenario")
    campus = _campus(table, folder)
    seed = table.whole("seed", 0, MAX_SEED, Scenario.seed)
    duration_s = table.quantity("duration", Dimension.DURATION, Scenario.duration_s)
    sections: dict[str, Any] = {key: fields.read(part, table.table(key)) for key, part in _SECTIONS.items()}
    research = tuple(fields.read(ResearchFlow, each) for each in table.tables("research"))
    background = fields.read(BackgroundLaw, table.table("background")) if table.has("background") else None
    scale = _scale(table.table("scale"))
    table.done()
    parts = {**sections, "research": research, "background": background}
    return Scenario(name, campus, seed, duration_s, scale=scale, **parts)


def _campus(table: Table, folder: Path) -> Campus:
    found = table.take("campus", 'a table [campus], or the path of a campus file, or "example:NAME"')
    if not isinstance(found, str):
        return files.campus_of(table.table("campus"))
    return files.load(found if found.startswith(files.EXAMPLE) else folder / found)


def _scale(table: Table) -> Scale:
    factors = {key: table.number(key, "a number greater than 0", 1.0) for key in ("bytes", "time")}
    table.done()
    return Scale(**factors)


def _lines(scenario: Scenario) -> Iterator[str]:
    yield f"name = {toml.quote(scenario.name)}"
    yield f"seed = {scenario.seed}"
    yield f"duration = {toml.quote(Dimension.DURATION.text(scenario.duration_s))}"
    yield from (
        "",
        "[scale]",
        f"bytes = {plain(scenario.scale.bytes)}",
        f"time = {plain(scenario.scale.time)}",
    )
    for key in _SECTIONS:
        yield from ("", f"[{key}]")
        yield from (f"{name} = {text}" for name, text in fields.pairs(getattr(scenario, key)))
    for flow in scenario.research:
        yield from ("", "[[research]]")
        yield from (f"{name} = {text}" for name, text in fields.pairs(flow))
    if scenario.background is not None:
        yield from ("", "[background]")
        yield from (f"{name} = {text}" for name, text in fields.pairs(scenario.background))
    yield from ("", "[campus]")
    yield from files.campus_lines(scenario.campus, "campus.")
