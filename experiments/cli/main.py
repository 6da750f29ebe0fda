"""The command line: options of all commands, and the way that each ends. A module for each group has the commands."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Annotated

import typer

from experiments.cli import agent, change, compare, look, measure, names, run, tend, write
from experiments.cli.options import console, put_away
from experiments.runtime import exit_status
from experiments.runtime.exit_status import ExitStatus
from testbed.logs import LEVELS, VARIABLE
from topologies.errors import nearest

app = typer.Typer(
    name="reclaimnet",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (run, look, change, names, agent, compare, measure, write, tend):
    app.add_typer(group.app)


def _version(wanted: bool) -> None:
    if wanted:
        from experiments.runtime.revision import PACKAGE, installed_version, revision

        typer.echo(f"{PACKAGE} {installed_version()} (commit {revision()}, Python {sys.version.split()[0]})")
        raise typer.Exit


@app.callback()
def reclaimnet(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print version and commit.", callback=_version, is_eager=True)
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="Before the command: nothing on stdout but what was asked for; errors stay."
        ),
    ] = False,
    log_level: Annotated[
        str | None,
        typer.Option(
            envvar=VARIABLE,
            metavar="|".join(LEVELS),
            help="Before the command: how much coordinator and agents write to their logs.",
            autocompletion=lambda: list(LEVELS),
        ),
    ] = None,
) -> None:
    """Run a live campus of reclaimable GPUs on one machine: real sockets, real bytes, real kernel enforcement."""
    context.call_on_close(partial(setattr, console, "quiet", False))
    console.quiet = quiet
    if log_level is not None:
        if log_level.lower() not in LEVELS:
            raise typer.BadParameter(f"--log-level {log_level}: one of {', '.join(LEVELS)}{nearest(log_level, LEVELS)}")
        os.environ[VARIABLE] = log_level.lower()


def main() -> None:
    """Run the command line; the exit status is one of `experiments.runtime.exit_status`."""
    status = exit_status.run(_command)
    exit_status.stands()
    if status == ExitStatus.INTERRUPTED:  # whoever did so waits for the end
        sys.stdout.flush()
        os._exit(status)
    sys.exit(status)


def _command() -> int | None:
    ended: int | None = ExitStatus.INTERRUPTED
    try:
        ended = app(standalone_mode=False)
    finally:
        put_away(in_index=ended != ExitStatus.INTERRUPTED)
    return ended


if __name__ == "__main__":
    main()
