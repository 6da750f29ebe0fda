"""The command that measures: a benchmark by its name, or all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.benchmarks import BENCHMARKS
from experiments.cli.options import MAX_HOSTS, Json, Out, console, print_json
from experiments.runtime.exit_status import ExitStatus
from topologies.errors import nearest

PANEL = "Measure"
app = typer.Typer()
ALL = "all"
MAX_MACHINES = 16
OF_HOSTS = ("bringup", "killswitch", "failover", "scale", "trust")
ABOUT = "Benchmarks: figures beside a peer or a goal, in one run.\n\n" + "\n\n".join(
    f"{name}: {about}" for name, (_, about) in BENCHMARKS.items()
)


def _names(incomplete: str) -> list[str]:
    return [name for name in (ALL, *BENCHMARKS) if name.startswith(incomplete)]


@app.command(rich_help_panel=PANEL, no_args_is_help=True, help=ABOUT)
def measure(
    name: Annotated[
        str, typer.Argument(autocompletion=_names, help="A benchmark; all: each of them, short, in half an hour.")
    ],
    out: Out = Path("out/measure"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter samples.")] = False,
    hosts: Annotated[
        str | None, typer.Option(help=f"Sizes of campuses, with commas: for {', '.join(OF_HOSTS)}.")
    ] = None,
    machines: Annotated[
        str | None, typer.Option(help="Also over so many machines, namespaces of this one, with commas: for scale.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a benchmark, print its tables and goals, and write them to `out`."""
    if name not in (ALL, *BENCHMARKS):
        raise typer.BadParameter(f"{name}: one of {', '.join((ALL, *BENCHMARKS))}{nearest(name, (ALL, *BENCHMARKS))}")
    if hosts is not None and name not in OF_HOSTS:
        raise typer.BadParameter(f"--hosts: only for {', '.join(OF_HOSTS)}")
    if machines is not None and name != "scale":
        raise typer.BadParameter("--machines: only for scale")
    sizes = _numbers("--hosts", hosts, 4, MAX_HOSTS) if hosts else ()
    parts = _numbers("--machines", machines, 2, MAX_MACHINES) if machines else ()
    from experiments.benchmarks.frame import Run, print_result, run_benchmark
    from experiments.benchmarks.run_all import measure_all, together_table
    from experiments.runtime.progress import progress_bar

    found: Any
    is_whole = True
    with progress_bar(console, f"parts of {name}", lines=0, transient=True) as progress:
        if name == ALL:
            found = measure_all(Run(out, progress=progress))
            is_whole = not any(part.why for part in found)
        else:
            found = run_benchmark(name, Run(out / name, quick, sizes, parts, progress))
    if name == ALL:
        console.print(together_table(found))
    else:
        print_result(name, found, console)
    if as_json:
        print_json({"command": f"measure {name}", "out": str(out), "result": found})
    if not is_whole:
        raise typer.Exit(ExitStatus.CUT_SHORT)


def _numbers(option: str, text: str, least: int, most: int) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.isdigit() and least <= int(word) <= most for word in words):
        raise typer.BadParameter(f"{option} {text}: whole numbers from {least} to {most}, with commas between")
    return tuple(map(int, words))
