"""Parts that commands share: the terminal that they write to, options that several of them have, and what shells complete."""

from __future__ import annotations

import fcntl
import grp
import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import typer
from rich.console import Console
from typer.core import TyperCommand

from experiments.runtime.sudo_ownership import belonging_to_caller
from testbed.emulation.safety.living import running_campuses
from testbed.errors import SetupError
from topologies.writing import naming

# without markup: a [word] of a user's name is no style
console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)

ORACLE = "oracle"  # beside the rows of `controller.core.policies`: it needs the whole trace, so it is not one of them
MAX_HOSTS = 2000  # of a live campus on one machine
COMPLETE_S = 1.0  # for a coordinator to name its jobs while a shell waits
WRITTEN = (".json", ".jsonl", ".html", ".csv", ".parquet", ".svg")  # how names of files of results end
LOCK = ".reclaimnet.lock"  # in a directory for results: held until the process that writes there ends
_HELD: dict[Path, IO[str]] = {}
_BELONGING = ExitStack()  # what hands those folders over


def results_folder(path: Path) -> Path:
    """Make and lock the directory for results: better to fail before the campus stands than after.

    It is locked for as long as this process lives. SetupError: another process writes there.
    """
    try:
        _BELONGING.enter_context(belonging_to_caller(path))
        path.mkdir(parents=True, exist_ok=True)
        (path / ".writable").touch()
        (path / ".writable").unlink()
        # readable for nobody else: a lock on it would keep this run waiting
        fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        lock = os.fdopen(fd, "a+", encoding="utf-8", errors="replace")
        in_the_way = [each for each in path.iterdir() if each.suffix in WRITTEN and each.is_dir()]
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}; a directory that can be written") from error
    if in_the_way:
        raise typer.BadParameter(f"{in_the_way[0]} is a folder, and may be a file of results: name another --out")
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
        with naming(path / LOCK):
            lock.truncate(0)
            lock.write(f"process {os.getpid()} ({shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])})\n")
            lock.flush()
    _HELD[path.resolve()] = lock
    return path


def put_away(*, in_index: bool) -> None:
    """Hand the directories that a command wrote to over to the user of sudo, and enter them in the index of all runs.

    Each command ends with it, however it ends.
    """
    for path, lock in _HELD.items():
        lock.seek(0)
        if f"process {os.getpid()} " not in lock.readline():
            return  # a child of the command
        if in_index:
            from experiments.results.runs.index import INDEX, update_index

            with belonging_to_caller(path.parent / INDEX), suppress(OSError):
                update_index(path)
    _BELONGING.close()


def _quiet(context: typer.Context, as_json: bool) -> bool:
    """Keep all else off stdout, until the command has ended."""
    if as_json:
        context.call_on_close(partial(setattr, console, "quiet", console.quiet))
        console.quiet = True
    return as_json


def print_json(value: Any) -> None:
    """Print one JSON document, for a script: nothing else is printed there."""
    sys.stdout.write(json.dumps(msgspec.to_builtins(value), indent=2) + "\n")


def _hosts(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Complete volunteer hosts of running campuses (of the one that --campus names)."""
    chosen = ctx.params.get("campus")
    names = dict.fromkeys(name for each in running_campuses() if chosen in (None, each.id) for name in each.volunteers)
    return (name for name in names if name.startswith(incomplete))


def _campuses(incomplete: str) -> Iterator[tuple[str, str]]:
    return ((each.id, each.name) for each in running_campuses() if each.id.startswith(incomplete))


def _jobs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Complete jobs of running campuses, with their phases; none where the coordinator may not be asked."""
    from experiments.worlds.live.operator import Operator, ask

    chosen = ctx.params.get("campus")
    found: list[tuple[str, str]] = []
    for campus in running_campuses():
        if chosen in (None, campus.id):
            with suppress(SetupError):
                told = ask(campus.run_dir, Operator.status, COMPLETE_S)
                found += [(job.job, job.phase) for job in told.jobs]
                found += [(job.job, job.phase) for job in told.ended]
    return [(name, phase) for name, phase in found if name.startswith(incomplete)]


def _policies(incomplete: str) -> list[str]:
    from controller.core.policies.table import POLICIES
    from topologies import plugins

    return [name for name in (*POLICIES, *plugins.offered(plugins.POLICIES)) if name.startswith(incomplete)]


def _more_policies(incomplete: str) -> list[str]:
    """Complete the last of names with commas between them."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in _policies(last)]


def _systems(incomplete: str) -> list[str]:
    return _policies(incomplete) + [name for name in (ORACLE,) if name.startswith(incomplete)]


class Groups(dict[str, int]):
    """Numbers of owners' groups by host; of the host "", of all others."""


def _groups(words: str | Groups) -> Groups:
    found = Groups()
    for word in words.split(",") if isinstance(words, str) else ():
        host, _, group = word.rpartition("=")
        try:
            found[host] = grp.getgrnam(group).gr_gid
        except KeyError:
            raise typer.BadParameter(f"{group}: no group of this machine; add one with: groupadd {group}") from None
    return found


Out = Annotated[Path, typer.Option("--out", help="Directory for the results.", callback=results_folder)]
Seed = Annotated[
    int | None,
    typer.Option(min=0, help="Instead of the scenario's: of jobs, owners, and the placing of recorded hosts."),
]
Records = Annotated[
    list[Path] | None,
    typer.Option(
        "--trace", help="Recorded owners: a file, again for each further one; or module:NAME of a function of your own."
    ),
]
UntilOver = Annotated[
    bool, typer.Option("--until-over", help="Go on after the scenario's end until every job is over.")
]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; as many as there are cores.")]
Dask = Annotated[
    str | None,
    typer.Option(
        "--dask", metavar="ADDRESS", help="A Dask scheduler, such as tls://HOST:8786, whose workers play instead."
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON document instead of tables, for scripts.", callback=_quiet)
]
CampusId = Annotated[
    str | None,
    typer.Option("--campus", help="Which campus, if several run (its id, see `status`).", autocompletion=_campuses),
]
HostName = Annotated[str, typer.Argument(help="A host of a running campus.", autocompletion=_hosts)]
JobName = Annotated[str, typer.Argument(help="A job of a running campus.", autocompletion=_jobs)]
JobNames = Annotated[
    list[str], typer.Argument(help="Jobs of a running campus.", metavar="JOB...", autocompletion=_jobs)
]
OfJob = Annotated[str | None, typer.Option("--job", help="Only what happens to this job.", autocompletion=_jobs)]
PolicyName = Annotated[
    str | None,
    typer.Option(
        "--policy",
        "--system",
        help="A system, or module:NAME of your own; if left out, the scenario's, in storms any of the project's.",
        autocompletion=_policies,
    ),
]
PolicyNames = Annotated[
    str | None,
    typer.Option(
        "--policy",
        "--system",
        help="Systems, or module:NAME of your own, with commas; the first is compared with.",
        autocompletion=_more_policies,
    ),
]
SystemName = Annotated[
    str | None,
    typer.Option(
        "--policy",
        "--system",
        help="A system, or module:NAME of your own, instead of the scenario's; or: oracle.",
        autocompletion=_systems,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A key of the scenario, say queue.target_delay='1 h'; may be repeated."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--override",
        metavar="FIELD=VALUE",
        help="An ablation: a field of the policy, say vault=false, or plan=no-p1 (that system's); may be repeated.",
    ),
]
Hosts = Annotated[int, typer.Option(min=1, max=MAX_HOSTS, help="Volunteer hosts.")]
AgentsPerProcess = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MAX_HOSTS,
        show_default="1; in campuses of more than 100 hosts 125",
        help="How many agents share a process: alone they are isolated, together they need less.",
    ),
]
Owners = Annotated[
    Groups | None,
    typer.Option(
        "--group",
        parser=_groups,
        metavar="GROUP|HOST=GROUP,...",
        help="Owners: members of this group, or of each host's own, may reclaim and return hosts without root.",
    ),
]


COMMAND = "reclaimnet.command"  # in the context of a command: the words behind `--`


class WithCommand(TyperCommand):
    """A command that takes another behind `--`, with options that are that one's own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as typer does, without what is behind `--`."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[COMMAND] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])
