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
    grace: Annotated[bool, typer.Option("--grace", help="Let transfers under way go on for a moment.")] = False,
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
    from experiments.inputs.job_file import check_runs, load_job
    from experiments.worlds.live.operator import PATIENCE_S, Operator, ask
    from testbed.emulation.safety.living import only_campus
    from testbed.errors import SetupError, SpecError
    from testbed.messages import Rejected

    chosen = only_campus(campus)
    jobs = [load_job(path) for path in files]
    try:
        folder = Path(f"/proc/{chosen.owner_pid}/cwd").readlink()
    except PermissionError as error:
        raise SetupError("only root may hand jobs to a campus") from error
    for path, job in zip(files, jobs, strict=True):  # one that is wrong: none is handed over
        try:
            check_runs(job, folder)
        except SpecError as error:
            raise error.within(str(path)) from None

    async def hand_over(operator: Operator) -> None:
        for n, (path, job) in enumerate(zip(files, jobs, strict=True)):
            answer = await operator.submit(job)
            if isinstance(answer, Rejected):
                reason = answer.reason
                if n > 0:
                    reason += f"; handed over before it: {', '.join(job.name for job in jobs[:n])}"
                if jobs[n + 1 :]:
                    reason += f"; not handed over: {', '.join(job.name for job in jobs[n + 1 :])}"
                raise SpecError("job", job.name, reason, str(path))
            if answer.before:
                console.print(
                    f"{job.name} was handed over before, as it is: nothing is begun anew (see `reclaimnet jobs`); "
                    "to run it once more, give it another name",
                    soft_wrap=True,
                )
            else:
                console.print(f"{job.name} is in the journal of campus {chosen.id}")

    ask(chosen.run_dir, hand_over, PATIENCE_S)


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
