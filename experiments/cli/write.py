"""The commands that write files to begin with, or for other programs: `example`, `schema`, `graph`."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import console

PANEL = "Write"
app = typer.Typer()


class Kind(StrEnum):
    """Kinds of files that have a schema."""

    CAMPUS = "campus"
    SCENARIO = "scenario"
    JOB = "job"


class GraphForm(StrEnum):
    """Forms of graphs."""

    MERMAID = "mermaid"
    DRAWIO = "drawio"


def _examples() -> dict[str, Path]:
    """Return the files of examples: scenarios by name, campuses as campus/NAME, programs as NAME.py."""
    from experiments.inputs.scenario import files as scenarios
    from topologies import files as campuses

    found = {path.stem: path for path in scenarios.EXAMPLES.glob("*.toml")}
    found |= {f"campus/{path.stem}": path for path in campuses.EXAMPLES.glob("*.toml")}
    found |= {path.name: path for path in scenarios.EXAMPLES.glob("[!_]*.py")}
    return dict(sorted(found.items()))


def _named(incomplete: str) -> list[str]:
    return [name for name in _examples() if name.startswith(incomplete)]


@app.command(rich_help_panel=PANEL)
def example(
    name: Annotated[
        str | None, typer.Argument(help="One of those listed; left out: all names.", autocompletion=_named)
    ] = None,
) -> None:
    """List the scenarios, campuses and programs that come along, or print one: a file to begin with."""
    from topologies import reading
    from topologies.errors import SpecError, nearest

    known = _examples()
    if name is None:
        console.print("\n".join(known), markup=False)
        return
    if name not in known:
        raise SpecError("example", name, f"one of {', '.join(known)}{nearest(name, known)}")
    text = reading.read_text(known[name])
    if known[name].suffix == ".toml" and '\nscenario = "' not in text:  # a sweep has no schema
        kind = Kind.CAMPUS if name.startswith("campus/") else Kind.SCENARIO
        text = f"#:schema ./{kind}.schema.json\n{text}"  # for editors: where `schema` wrote it beside the file
    sys.stdout.write(text)


@app.command(rich_help_panel=PANEL)
def schema(kind: Annotated[Kind, typer.Argument(help="Of which files.")]) -> None:
    """Print the JSON Schema of campus, scenario or job files, with which editors complete and check them."""
    from experiments.inputs.schemas import schema_of

    sys.stdout.write(json.dumps(schema_of(kind), indent=1) + "\n")


@app.command(rich_help_panel=PANEL)
def graph(
    campus: Annotated[str, typer.Argument(help="A campus file, example:NAME, or module:NAME of your own.")],
    form: Annotated[GraphForm, typer.Option("--format", help="Of the graph.")] = GraphForm.MERMAID,
) -> None:
    """Print a campus as a graph: for Mermaid, or a drawing for draw.io."""
    from experiments.results.graph import drawio, mermaid
    from topologies.files import load

    sys.stdout.write((mermaid if form is GraphForm.MERMAID else drawio)(load(campus)))
