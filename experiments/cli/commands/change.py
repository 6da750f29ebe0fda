"""The commands that change a running campus: `reclaim`, `return`, `submit`, `cancel`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import CampusId, HostName, JobNames, console

PANEL = "Change"
app = typer.Typer()


@app.command(rich_help_panel=PANEL)
def reclaim(
    host: HostName,
    notice: Annotated[float, typer.Option(help="Seconds until the host is closed; 0: now.")] = 0.0,
    grace: Annotated[
        bool, typer.Option("--grace", help="Let transfers under way go on for a moment.")
    ] = False,
    campus: CampusId = None,
) -> None:
    """Take a host back by its owner's switch, even if agent and coordinator are dead."""
    from experiments.cli.owner import reclaim as run

    typer.echo(run(host, notice, grace, campus))


@app.command("return", rich_help_panel=PANEL)
def lend(host: HostName, campus: CampusId = None) -> None:
    """Lend a host again by its owner's switch."""
    from experiments.cli.owner import lend as run

    typer.echo(run(host, campus))


@app.command(rich_help_panel=PANEL)
def submit(
    files: Annotated[list[Path], typer.Argument(help="Job files (TOML).", metavar="JOB.toml...")],
    campus: CampusId = None,
) -> None:
    """Submit jobs of your own to a running campus."""
    from experiments.cli.jobs import submit as run

    run(console, files, campus)


@app.command(rich_help_panel=PANEL)
def cancel(jobs: JobNames, campus: CampusId = None) -> None:
    """Cancel jobs of a running campus for good: their processes end, their checkpoints are dropped."""
    from experiments.cli.jobs import cancel as run

    run(console, jobs, campus)
