"""The commands that show what runs or ran: `status`, `jobs`, `logs`, `events`, `dashboard`, `results`."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import CampusId, JobName, Json, OfJob, console, print_json

PANEL = "Look"
LOOK_S = 0.5  # between two looks at a log that is followed
READ_BYTES = 1 << 20
app = typer.Typer()


@app.command(rich_help_panel=PANEL)
def status(campus: CampusId = None, as_json: Json = False) -> None:
    """Show running campuses: hosts, switches, jobs, queue."""
    from experiments.cli.status import campus_status, status_table

    for each in (found := campus_status(campus)):
        if not as_json:
            console.print(*status_table(each), sep="\n")
    if as_json:
        print_json({"campuses": found})
    elif not found:
        console.print("no campus is running on this machine")


@app.command(rich_help_panel=PANEL)
def jobs(campus: CampusId = None, as_json: Json = False) -> None:
    """List the jobs of a running campus: their hosts, and the reasons of those that failed."""
    from rich.table import Table

    from experiments.worlds.live.operator import PATIENCE_S, Operator, ask
    from testbed.emulation.safety.living import only_campus
    from topologies.units import format_duration, format_rate

    chosen = only_campus(campus)
    told = ask(chosen.run_dir, Operator.status, PATIENCE_S)
    if as_json:
        print_json({"campus": chosen.id, "now_s": told.now_s, "jobs": told.jobs, "ended": told.ended})
        return
    table = Table("job", "phase", "host", "standby", "step", "attempt", "checkpoint every", "may send", "why")
    for ended in told.ended:
        step = f"{ended.step}/{ended.steps}"
        table.add_row(ended.job, ended.phase, ended.host, "", step, "", "", "", ended.reason)
    for job in told.jobs:
        interval, grant = job.interval_s, job.grant_bytes_per_s
        every = "" if interval is None else format_duration(interval)
        rate = "" if grant is None else format_rate(grant)
        step = f"{job.step}/{job.steps}"
        table.add_row(job.job, job.phase, job.host, job.standby, step, str(job.attempt), every, rate, job.remark)
    console.print(table)


@app.command(rich_help_panel=PANEL)
def logs(
    job: JobName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job is over.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only this one, by its number.")] = None,
    campus: CampusId = None,
) -> None:
    """Print what a job wrote to stdout and stderr, attempt by attempt."""
    import difflib

    from experiments.worlds.live.operator import JOB_LOGS, LOGS, PATIENCE_S, Operator, ask
    from testbed.emulation.safety.living import only_campus
    from testbed.errors import SpecError
    from testbed.workloads.output import output_files

    chosen = only_campus(campus)
    folder = chosen.run_dir / LOGS / JOB_LOGS
    read: dict[Path, int] = {}
    while True:
        told = ask(chosen.run_dir, Operator.status, PATIENCE_S)
        known = [each.job for each in told.jobs] + [each.job for each in told.ended]
        written = output_files(folder, job)
        is_over = all(each.job != job for each in told.jobs)
        if is_over and not written and job not in known:
            near = ", ".join(difflib.get_close_matches(job, known, n=3, cutoff=0.0)) or "none was submitted"
            raise SpecError("JOB", job, f"a job of the campus (see `reclaimnet jobs`): {near}")
        if (is_over or not follow) and attempt not in (None, *written):
            there = ", ".join(map(str, written)) or "none"
            raise SpecError("--attempt", attempt, f"an attempt of {job} that wrote something: {there}")
        for number, path in written.items():
            if attempt in (None, number):
                _copy_on(f"attempt {number}", path, read)
        if is_over or not follow:
            return
        time.sleep(LOOK_S)


def _copy_on(head: str, path: Path, read: dict[Path, int]) -> None:
    """Print the lines added to a log since it was read, each new log after its head."""
    from testbed.workloads.output import HEAD_BYTES

    try:
        file = path.open("rb")
    except FileNotFoundError:  # nothing was written to it, and the attempt is over
        return
    with file:
        at = read.get(path, 0)
        if (
            os.fstat(file.fileno()).st_size < at
        ):  # its middle was dropped; a line behind what is left of its beginning marks that
            at = min(at, HEAD_BYTES)
        file.seek(at)
        while data := file.read(READ_BYTES):
            if path not in read:
                sys.stdout.buffer.write(f"== {head}\n".encode())
            sys.stdout.buffer.write(data)
            read[path] = file.tell()
    sys.stdout.flush()


@app.command(rich_help_panel=PANEL)
def events(job: OfJob = None, campus: CampusId = None) -> None:
    """Follow a running campus: a line of JSON for each fact, as it happens."""
    import msgspec

    from experiments.worlds.live.operator import Operator, ask
    from testbed.emulation.safety.living import only_campus

    async def watch(operator: Operator) -> None:
        async for at_s, fact in operator.watch():
            if job is None or job == getattr(fact, "job", None):
                line = {"at_s": round(at_s, 6), **msgspec.to_builtins(fact)}
                sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
                sys.stdout.flush()

    ask(only_campus(campus).run_dir, watch, inf)


@app.command(rich_help_panel=PANEL)
def dashboard(
    run: Annotated[
        Path | None,
        typer.Argument(
            help="The events.jsonl of a run that is over; left out: the campus that runs.", metavar="[EVENTS]"
        ),
    ] = None,
    campus: CampusId = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="On 127.0.0.1; 0: any that is free.")] = 8080,
    metrics: Annotated[
        str | None, typer.Option(help="Also serve metrics to operators of other machines, at ADDRESS:PORT.")
    ] = None,
    authority: Annotated[Path | None, typer.Option(help="The campus's (`ca init`): --metrics needs it.")] = None,
) -> None:
    """Serve a live page of a running campus, or replay a run: map, jobs, time line, events."""
    from experiments.dashboard import serve, sources
    from testbed.emulation.safety.living import only_campus
    from testbed.errors import SpecError
    from topologies.addresses import endpoint

    if run is None:
        standing = only_campus(campus)
        shown, what = serve.of_campus(standing), f"campus {standing.id}"
    elif campus is None:
        shown, what = serve.Shown(sources.open_run(run)), str(run)
    else:
        raise SpecError("--campus", campus, "nothing, with a run that is over")

    if metrics is None and authority is not None:
        raise SpecError("--authority", authority, "nothing, without --metrics")
    if metrics is not None:
        try:
            shown = replace(shown, remote=(*endpoint(metrics), Path(authority or "")))
        except ValueError:
            raise SpecError("--metrics", metrics, "ADDRESS:PORT of this machine") from None

    def tell(address: str) -> None:
        console.print(f"{what}: {address}", soft_wrap=True)
        sys.stdout.flush()

    serve.serve(shown, port, tell)


@app.command(rich_help_panel=PANEL)
def results(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="A folder of runs (out, if none is named): its index. Two to six runs: what differs."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write an index.html of all runs in a folder, or compare two to six runs, figure by figure."""
    from experiments.cli.results import show_differences, show_index

    match folders or [Path("out")]:
        case [folder]:
            found: object = {"runs": show_index(console, folder)}
        case runs:
            found = {"rows": show_differences(console, runs)}
    if as_json:
        print_json(found)
