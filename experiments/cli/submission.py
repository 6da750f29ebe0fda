"""`reclaimnet submit` and `retry`: jobs of a user's own handed to a running campus."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import typer
from msgspec import structs

from experiments.cli.options import console
from experiments.inputs.job_file import Submission, check_runs, of_command, of_file
from experiments.runtime.sudo_ownership import caller
from experiments.worlds.live.operator import JOB_LOGS, LOGS, PATIENCE_S, Operator, ask
from testbed.emulation.safety.living import RunningCampus, only_campus
from testbed.errors import SetupError, SpecError, TestbedError
from testbed.messages import JobSpec, Rejected
from testbed.workloads.output import output_file, output_files
from testbed.workloads.returned import bring_output
from topologies import toml

A_JOB_S = 0.1  # more of patience: its questions, and a line of the journal
LOOK_S = 1.0  # between two looks for jobs that are over
MAY_RUN_AGAIN = ("failed", "cancelled")


def submissions(
    files: Sequence[Path], command: Sequence[str], name: str | None, settings: Sequence[str], count: int | None
) -> list[Submission]:
    """Return what is to be submitted: files, or a command. SpecError."""
    if bool(files) == bool(command):
        raise typer.BadParameter("job files, or -- and a command")
    if name is not None:
        if len(files) > 1:
            raise SpecError("--name", name, "a name for one job file")
        settings = [*settings, f"name={toml.quote(name)}"]
    if command:
        return [of_command(command, settings, count)]
    return [of_file(path, settings, count) for path in files]


def submit_all(submitted: Sequence[Submission], campus: str | None) -> list[str]:
    """Submit all jobs, or none if one is wrong; return their names. SpecError, SetupError."""
    chosen = only_campus(campus)
    try:
        folder = Path(f"/proc/{chosen.owner_pid}/cwd").readlink()
    except OSError as error:
        raise SetupError("only root may hand jobs to a campus, and on its machine") from error
    for source, jobs, _ in submitted:  # one that is wrong: none is handed over
        try:
            check_runs(jobs[0], folder)
        except SpecError as error:
            raise error.within(source) from None
    left = [(job, source, is_named) for source, jobs, is_named in submitted for job in jobs]

    async def hand_over(operator: Operator) -> list[JobSpec]:
        done: list[JobSpec] = []
        for n, (job, source, is_named) in enumerate(left):
            answer = await (operator.submit if is_named else operator.submit_new)(job)
            if isinstance(answer, Rejected):
                reason = answer.reason
                if done:
                    reason += f"; handed over before it: {', '.join(job.name for job in done)}"
                if left[n + 1 :]:
                    reason += f"; not handed over: {', '.join(job.name for job, *_ in left[n + 1 :])}"
                raise SpecError("job", job.name, reason, source)
            done.append(structs.replace(job, name=answer.job))
            if answer.before:
                console.print(
                    f"{job.name} was handed over before, as it is: nothing is begun anew (see `reclaimnet jobs`); "
                    "to run it once more, give it another name",
                    soft_wrap=True,
                )
            else:
                console.print(f"{answer.job} is in the journal of campus {chosen.id}")
        return done

    return bring_back(chosen, ask(chosen.run_dir, hand_over, PATIENCE_S + len(left) * A_JOB_S))


def submit_again(names: Sequence[str], campus: str | None) -> list[str]:
    """Submit jobs that failed or were cancelled as new ones. SpecError: one is none of these, and none is submitted."""
    chosen = only_campus(campus)

    async def hand_over(operator: Operator) -> list[JobSpec]:
        again: list[JobSpec] = []
        for name in names:
            known = await operator.describe(name)
            if known is None or known.phase not in MAY_RUN_AGAIN:
                is_now = f", and it is {known.phase}" if known else ""
                raise SpecError("JOB", name, f"a job that failed or was cancelled (see `reclaimnet jobs`){is_now}")
            again.append(known.job)
        for n, job in enumerate(again):
            answer = await operator.submit_new(job)
            if isinstance(answer, Rejected):
                raise SpecError("job", job.name, answer.reason)
            console.print(f"{answer.job} is {job.name} once more, from its first step", soft_wrap=True)
            again[n] = structs.replace(job, name=answer.job)
        return again

    return bring_back(chosen, ask(chosen.run_dir, hand_over, PATIENCE_S))


def bring_back(campus: RunningCampus, jobs: Sequence[JobSpec]) -> list[str]:
    """Leave a process that brings the output of each of these jobs to its submitter once the job, or the campus, is over.

    Return the names of the jobs.
    """
    left = {job.name: job for job in jobs if job.output is not None}
    if not left:
        return [job.name for job in jobs]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # of a terminal that ends with this command
    if os.fork():
        return [job.name for job in jobs]
    try:
        os.setsid()
        for number, nowhere in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
            os.dup2(os.open(os.devnull, nowhere), number)
        logs = (campus.run_dir / LOGS / JOB_LOGS).resolve()
        while left:
            time.sleep(LOOK_S)
            running: set[str] = set()
            try:
                running = {each.job for each in ask(campus.run_dir, Operator.status, PATIENCE_S).jobs}
            except SetupError:
                if Path(f"/proc/{campus.owner_pid}").exists():  # its coordinator is being started again
                    continue
            for name in left.keys() - running:
                _bring(left.pop(name), logs)
    finally:
        os._exit(0)


def _bring(job: JobSpec, logs: Path) -> None:
    """Bring a job's output, in a process that becomes its submitter's; a failure is the last line of the job's log."""
    if pid := os.fork():
        os.waitpid(pid, 0)
        return
    log = [output_file(logs, job.name, 1), *output_files(logs, job.name).values()][-1].open("a")
    try:
        bring_output(job.name, logs, Path(job.returns_to, job.output or ""), caller())
    except (OSError, TestbedError) as error:
        log.write(f"[reclaimnet] its output could not be brought to {job.returns_to}: {error}\n")
        log.flush()
    finally:
        os._exit(0)
