"""The commands that write files to begin with, or for other programs: `example`, `schema`, `graph`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import console

PANEL = "Write"
app = typer.Typer()
GraphForm = StrEnum("GraphForm", ["MERMAID", "DRAWIO"])


def _examples() -> dict[str, Path]:
    """Return the files of examples: scenarios by name, campuses as campus/NAME, programs as NAME.py."""
    from experiments.inputs.scenario import files as scenarios
    from topologies import files as campuses

    found = {path.stem: path for path in scenarios.EXAMPLES.glob("*.toml")}
    found |= {f"campus/{path.stem}": path for path in campuses.EXAMPLES.glob("*.toml")}
    return dict(sorted((found | {path.name: path for path in scenarios.EXAMPLES.glob("[!_]*.py")}).items()))


@app.command(rich_help_panel=PANEL)
def example(
    name: Annotated[
        str | None,
        typer.Argument(help="One of those listed; left out: all names.", autocompletion=lambda: [*_examples()]),
    ] = None,
) -> None:
    """List the scenarios, campuses and programs that come along, or print one: a file to begin with."""
    from topologies.errors import SpecError, nearest

    known = _examples()
    if name is None:
        console.print("\n".join(known))
        return
    if name not in known:
        raise SpecError("example", name, f"one of {', '.join(known)}{nearest(name, known)}")
    text = known[name].read_text("utf-8")
    if known[name].suffix == ".toml" and '\nscenario = "' not in text:  # a sweep has no schema
        # for editors, where `schema` wrote it beside the file
        text = f"#:schema ./{'campus' if name.startswith('campus/') else 'scenario'}.schema.json\n{text}"
    sys.stdout.write(text)


@app.command(rich_help_panel=PANEL)
def schema(
    kind: Annotated[
        str, typer.Argument(help="campus, scenario or job.", autocompletion=lambda: ["campus", "job", "scenario"])
    ],
) -> None:
    """Print the JSON Schema of campus, scenario or job files, with which editors complete and check them."""
    from experiments import inputs
    from topologies.errors import SpecError, nearest

    known = {path.name.partition(".")[0]: path for path in Path(inputs.__file__).parent.glob("*.schema.json")}
    if kind not in known:
        raise SpecError("KIND", kind, f"one of {', '.join(known)}{nearest(kind, known)}")
    sys.stdout.write(known[kind].read_text("utf-8"))


@app.command(rich_help_panel=PANEL)
def graph(
    campus: Annotated[str, typer.Argument(help="A campus file, example:NAME, or module:NAME of your own.")],
    form: Annotated[GraphForm, typer.Option("--format", help="Of the graph.")] = GraphForm.MERMAID,
) -> None:
    """Print a campus as a graph: for Mermaid, or a drawing for draw.io."""
    from experiments.results.graph import drawio, mermaid
    from topologies.files import load

    sys.stdout.write((mermaid if form is GraphForm.MERMAID else drawio)(load(campus)))
