"""What commands share: the terminal that they write to, and options that several of them have."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)

MOST_HOSTS = 2000  # of a live campus on one machine


def _results(path: Path) -> Path:
    """The directory for results, made now: better to fail before the campus stands than after."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / ".writable").touch()
        (path / ".writable").unlink()
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}; a directory that can be written") from error
    return path


Out = Annotated[Path, typer.Option("--out", help="Directory for the results.", callback=_results)]
Hosts = Annotated[int, typer.Option(min=1, max=MOST_HOSTS, help="Volunteer hosts.")]
