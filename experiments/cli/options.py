"""What commands share: the terminal that they write to, and options that several of them have."""

from __future__ import annotations

import fcntl
import grp
import os
import shlex
import sys
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand

from testbed.errors import SetupError

console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)

WEB_PORT = 8080
MOST_HOSTS = 2000  # of a live campus on one machine
LOCK = ".reclaimnet.lock"  # in a directory for results: held by the command that writes there, until its process ends
_HELD: dict[Path, IO[str]] = {}


def _results(path: Path) -> Path:
    """The directory for results, made and taken now: better to fail before the campus stands than after.

    It is locked for as long as this process lives. SetupError: another process writes there.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / ".writable").touch()
        (path / ".writable").unlink()
        lock = (path / LOCK).open("a+")
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}; a directory that can be written") from error
    if path.resolve() in _HELD:
        return path
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "another run"
        lock.close()
        raise SetupError(f"{path}: {holder} writes there: wait for its end, or name another --out") from None
    except OSError:
        pass  # a file system without locks: done without
    else:
        lock.truncate(0)
        lock.write(f"process {os.getpid()} ({shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])})\n")
        lock.flush()
    _HELD[path.resolve()] = lock
    return path


def _gid(group: str | None) -> int | None:
    try:
        return None if group is None else grp.getgrnam(group).gr_gid
    except KeyError:
        raise typer.BadParameter(
            f"{group}: no group of this machine; add one with: groupadd {group}"
        ) from None


Out = Annotated[Path, typer.Option("--out", help="Directory for the results.", callback=_results)]
Hosts = Annotated[int, typer.Option(min=1, max=MOST_HOSTS, help="Volunteer hosts.")]
AgentsPerProcess = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST_HOSTS,
        show_default="1; in campuses of more than 100 hosts 125",
        help="How many agents share a process: alone they are isolated, together they need less memory and processor.",
    ),
]
Owners = Annotated[
    int | None,
    typer.Option(
        "--group",
        parser=_gid,
        metavar="GROUP",
        help="Owners: members of this group may reclaim and return hosts without root.",
    ),
]


class WithWeb(TyperCommand):
    """A command whose option --web may stand without its port: typer has no options whose value may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer's, with the port filled in."""
        filled = [
            f"--web={WEB_PORT}" if word == "--web" and not "".join(args[n + 1 : n + 2]).isdigit() else word
            for n, word in enumerate(args)
        ]
        return super().parse_args(ctx, filled)


Web = Annotated[
    int | None,
    typer.Option(
        "--web",
        min=0,
        max=65535,
        metavar="[PORT]",
        show_default=False,
        help=f"A live page on 127.0.0.1, at {WEB_PORT} if no port is said, at any free one with 0.",
    ),
]
