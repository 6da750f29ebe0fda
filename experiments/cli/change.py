"""The commands that change a running campus: `reclaim`, `return`, `submit`, `retry`, `cancel`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import COMMAND, CampusId, HostName, JobNames, Json, WithCommand, console, print_json
from testbed.bounds import MAX_ARRAY

PANEL = "Change"
app = typer.Typer()


@app.command(rich_help_panel=PANEL)
def reclaim(
    host: HostName,
    notice: Annotated[float, typer.Option(help="Seconds until the host is closed; 0: now.")] = 0.0,
    campus: CampusId = None,
) -> None:
    """Take a host back by its owner's switch, even if agent and coordinator are dead."""
    from experiments.cli.owner import reclaim as run

    typer.echo(run(host, notice, campus))


@app.command("return", rich_help_panel=PANEL)
def lend(host: HostName, campus: CampusId = None) -> None:
    """Lend a host again by its owner's switch."""
    from experiments.cli.owner import lend as run

    typer.echo(run(host, campus))


@app.command(cls=WithCommand, rich_help_panel=PANEL)
def submit(
    ctx: typer.Context,
    files: Annotated[
        list[Path] | None, typer.Argument(help="Job files (TOML).", metavar="[JOB.toml...] [-- COMMAND]")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the job.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A key of a job file, say payload='1 GB'; may be repeated."),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_ARRAY, help="An array: so many, each with its RECLAIMNET_INDEX, from 1."),
    ] = None,
    campus: CampusId = None,
    as_json: Json = False,
) -> None:
    """Submit jobs of your own to a running campus: files, or a command behind --, which then runs in this folder."""
    from experiments.cli.submission import submissions, submit_all

    names = submit_all(submissions(files or [], ctx.meta[COMMAND], name, settings or [], count), campus)
    if as_json:
        print_json({"jobs": names})


@app.command("try", rich_help_panel=PANEL)
def try_(
    file: Annotated[Path, typer.Argument(help="A job file (TOML).", metavar="JOB.toml")], as_json: Json = False
) -> None:
    """Play a job alone, save it, resume it in another process, and print its steps, step and payload as measured."""
    from experiments.cli.trial import try_job
    from experiments.inputs.job_file import DECLARED, of_file

    [job] = of_file(file, declared=DECLARED).jobs
    lines = try_job(job, file.absolute().parent)
    console.print(f"it resumes in another process where it was; for {file}:", soft_wrap=True)
    if as_json:
        print_json(tomllib.loads("\n".join(lines)))
    else:
        typer.echo("\n".join(lines))


@app.command(rich_help_panel=PANEL)
def retry(jobs: JobNames, campus: CampusId = None, as_json: Json = False) -> None:
    """Submit failed or cancelled jobs once more, as new jobs under names of their own."""
    from experiments.cli.submission import submit_again

    names = submit_again(jobs, campus)
    if as_json:
        print_json({"jobs": names})


@app.command(rich_help_panel=PANEL)
def cancel(jobs: JobNames, campus: CampusId = None) -> None:
    """Cancel jobs of a running campus for good: their processes end, their checkpoints are dropped."""
    from experiments.worlds.live.operator import PATIENCE_S, Operator, ask
    from testbed.emulation.safety.living import only_campus
    from testbed.errors import SpecError
    from testbed.messages import Rejected

    async def take_back(operator: Operator) -> list[Rejected]:
        refused = []
        for name in jobs:
            answer = await operator.cancel(name)
            if isinstance(answer, Rejected):
                refused.append(answer)
                continue
            again = " already" if answer.before else ""
            ends = f": {answer.host} ends its process" if answer.host else ""
            console.print(f"{answer.job} is{again} {'being cancelled' if answer.host else 'cancelled'}{ends}")
        return refused

    if refused := ask(only_campus(campus).run_dir, take_back, PATIENCE_S):
        reasons = "; ".join(f"{answer.job}: {answer.reason}" for answer in refused)
        names = ", ".join(answer.job for answer in refused)
        raise SpecError("JOB", names, f"jobs that are not over ({reasons})")
