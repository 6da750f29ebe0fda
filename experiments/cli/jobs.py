"""`reclaimnet submit`, `cancel`, `jobs`, `logs` and `events`: one's own work on a running campus, from another terminal.

The campus is found by its ledger, its coordinator by its socket, which is for root alone.
"""

from __future__ import annotations

import difflib
import os
import sys
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.cli.options import print_json
from experiments.inputs.job_file import check_runs, load_job
from experiments.worlds.live.operator import JOB_LOGS, LOGS, Operator, ask
from testbed.emulation.safety.ledger import only_campus
from testbed.errors import SetupError, SpecError
from testbed.messages import Rejected
from testbed.workloads.output import HEAD_BYTES, output_files
from topologies.units import format_duration, format_rate

PATIENCE_S = 10.0  # for a coordinator that does not answer
LOOK_S = 0.5  # between two looks at a log that is followed
READ_BYTES = 1 << 20


def submit(console: Console, files: Sequence[Path], campus_id: str | None) -> None:
    """Hand jobs to a campus, in order; each is in its journal when this returns.

    SpecError: a file is wrong, and none is handed over; or the coordinator refuses a job (no such GPU, a name that is taken):
    those before it stay, those behind it are not handed over, and the message says so.
    """
    campus = only_campus(campus_id)
    jobs = [load_job(path) for path in files]
    try:
        folder = Path(f"/proc/{campus.owner_pid}/cwd").readlink()
    except PermissionError as error:
        raise SetupError("only root may hand jobs to a campus") from error
    for path, job in zip(files, jobs, strict=True):
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
                console.print(f"{job.name} is in the journal of campus {campus.id}")

    ask(campus.run_dir, hand_over, PATIENCE_S)


def cancel(console: Console, names: Sequence[str], campus_id: str | None) -> None:
    """End jobs, whatever they are doing; that is in the coordinator's journal when this returns. SpecError names those that
    it refuses, the others are cancelled."""
    campus = only_campus(campus_id)

    async def take_back(operator: Operator) -> list[Rejected]:
        refused = []
        for name in names:
            answer = await operator.cancel(name)
            if isinstance(answer, Rejected):
                refused.append(answer)
                continue
            again = " already" if answer.before else ""
            ends = f": {answer.host} ends its process" if answer.host else ""
            console.print(f"{answer.job} is{again} {'being cancelled' if answer.host else 'cancelled'}{ends}")
        return refused

    if refused := ask(campus.run_dir, take_back, PATIENCE_S):
        reasons = "; ".join(f"{answer.job}: {answer.reason}" for answer in refused)
        raise SpecError(
            "JOB", ", ".join(answer.job for answer in refused), f"jobs that are not over ({reasons})"
        )


def jobs(console: Console, campus_id: str | None, *, as_json: bool = False) -> None:
    """The jobs of a campus: those that are not over, and the last that ended, failures with their reasons."""
    campus = only_campus(campus_id)
    told = ask(campus.run_dir, Operator.status, PATIENCE_S)
    if as_json:
        print_json({"campus": campus.id, "now_s": told.now_s, "jobs": told.jobs, "ended": told.ended})
        return
    table = Table("job", "phase", "host", "standby", "step", "attempt", "checkpoint every", "may send", "why")
    for ended in told.ended:
        step = f"{ended.step}/{ended.steps}"
        table.add_row(ended.job, ended.phase, ended.host, "", step, "", "", "", Text(ended.reason))
    for job in told.jobs:
        table.add_row(
            job.job,
            job.phase,
            job.host,
            job.standby,
            f"{job.step}/{job.steps}",
            str(job.attempt),
            "" if job.interval_s is None else format_duration(job.interval_s),
            "" if job.grant_bytes_per_s is None else format_rate(job.grant_bytes_per_s),
        )
    console.print(table)


def logs(job: str, follow: bool, campus_id: str | None) -> None:
    """Print what a job wrote to stdout and stderr, attempt by attempt. `follow`: until it is over."""
    campus = only_campus(campus_id)
    folder = campus.run_dir / LOGS / JOB_LOGS
    read: dict[Path, int] = {}
    while True:
        told = ask(campus.run_dir, Operator.status, PATIENCE_S)
        known = [each.job for each in told.jobs] + [each.job for each in told.ended]
        written = output_files(folder, job)
        is_over = all(each.job != job for each in told.jobs)
        if is_over and not written and job not in known:
            near = ", ".join(difflib.get_close_matches(job, known, n=3, cutoff=0.0)) or "none was submitted"
            raise SpecError("JOB", job, f"a job of the campus (see `reclaimnet jobs`): {near}")
        for attempt, path in written.items():
            _copy_on(f"attempt {attempt}", path, read)
        if is_over or not follow:
            return
        time.sleep(LOOK_S)


def events(job: str | None, campus_id: str | None) -> None:
    """Each fact as a line of JSON when it is recorded, those of one job or all, until the campus ends."""

    async def watch(operator: Operator) -> None:
        async for at_s, fact in operator.watch():
            if job is None or job == getattr(fact, "job", None):
                line = {"at_s": round(at_s, 6), **msgspec.to_builtins(fact)}
                sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
                sys.stdout.flush()

    ask(only_campus(campus_id).run_dir, watch, inf)


def _copy_on(head: str, path: Path, read: dict[Path, int]) -> None:
    """Print the lines added to a log since it was read, each new log after its head."""
    try:
        file = path.open("rb")
    except FileNotFoundError:  # nothing was written to it, and the attempt is over
        return
    with file:
        at = read.get(path, 0)
        if (
            os.fstat(file.fileno()).st_size < at
        ):  # its middle was dropped; it says so behind what is left of its beginning
            at = min(at, HEAD_BYTES)
        file.seek(at)
        while data := file.read(READ_BYTES):
            if path not in read:
                sys.stdout.buffer.write(f"== {head}\n".encode())
            sys.stdout.buffer.write(data)
            read[path] = file.tell()
    sys.stdout.flush()
