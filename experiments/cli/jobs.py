"""`reclaimnet submit`, `jobs`, `logs` and `events`: one's own work on a running campus, from another terminal.

The campus is found by its ledger, its coordinator by its socket, which is for root alone.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import trio
from rich.console import Console
from rich.table import Table

from experiments.inputs.job_file import check_runs, load_job
from experiments.worlds.live.operator import JOB_LOGS, LOGS, SOCKET, Operator, connected
from testbed.clock import MonotonicClock
from testbed.emulation.safety.ledger import RunningCampus, running_campuses
from testbed.errors import SetupError, SpecError
from testbed.messages import Rejected, Status
from topologies.units import format_duration, format_rate

PATIENCE_S = 10.0  # for a coordinator that does not answer
LOOK_S = 0.2  # between two looks at a log that is followed
READ_BYTES = 1 << 20
T = TypeVar("T")


def submit(console: Console, files: Sequence[Path], campus_id: str | None) -> None:
    """Hand jobs to a campus; each is in its journal when this returns. SpecError: one is wrong, and none is handed over."""
    campus = running_campus(campus_id)
    jobs = [load_job(path) for path in files]
    folder = Path(f"/proc/{campus.owner_pid}/cwd").readlink()
    for path, job in zip(files, jobs, strict=True):
        try:
            check_runs(job, folder)
        except SpecError as error:
            raise error.within(str(path)) from None

    async def hand_over(operator: Operator) -> None:
        for path, job in zip(files, jobs, strict=True):
            answer = await operator.submit(job)
            if isinstance(answer, Rejected):
                raise SpecError("job", job.name, answer.reason, str(path))
            console.print(f"{job.name} is in the journal of campus {campus.id}")

    ask(campus, hand_over)


def jobs(console: Console, campus_id: str | None) -> None:
    """The jobs of a campus: those that are not over, and the last that ended, failures with their reasons."""
    campus = running_campus(campus_id)
    told = ask(campus, Operator.status)
    table = Table("job", "phase", "host", "standby", "step", "attempt", "checkpoint every", "may send", "why")
    for ended in told.ended:
        step = f"{ended.step}/{ended.steps}"
        table.add_row(ended.job, ended.phase, ended.host, "", step, "", "", "", ended.reason)
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
            "",
        )
    console.print(table)


def logs(job: str, follow: bool, campus_id: str | None) -> None:
    """What a job wrote to stdout and stderr, attempt by attempt; `follow`: until it is over."""
    campus = running_campus(campus_id)
    folder = campus.run_dir / LOGS / JOB_LOGS
    read: dict[Path, int] = {}
    while True:
        told = ask(campus, Operator.status)
        if not read and not _is_known(job, told, folder):
            raise SpecError("JOB", job, "a job of the campus (see `reclaimnet jobs`)")
        is_over = not any(each.job == job for each in told.jobs)
        for path in _attempts(folder, job):
            _copy_on(path, read)
        if is_over or not follow:
            return
        time.sleep(LOOK_S)


def events(job: str | None, campus_id: str | None) -> None:
    """Each fact as a line of JSON when it is recorded, those of one job or all, until the campus ends."""

    async def watch(operator: Operator) -> None:
        async for at_s, fact in operator.watch():
            if job is None or getattr(fact, "job", None) == job:
                line = {"at_s": round(at_s, 6), **msgspec.to_builtins(fact)}
                sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
                sys.stdout.flush()

    ask(running_campus(campus_id), watch, patience_s=float("inf"))


def running_campus(campus_id: str | None) -> RunningCampus:
    """The campus of that id, or the only one; SetupError."""
    found = [campus for campus in running_campuses() if campus_id in (None, campus.id)]
    if not found:
        raise SetupError(
            "no campus is running on this machine: start one with `reclaimnet up`"
            if campus_id is None
            else f"no campus {campus_id} is running"
        )
    if len(found) > 1:
        raise SetupError(f"several campuses are running: add --campus, one of {[c.id for c in found]}")
    return found[0]


def ask(campus: RunningCampus, what: Callable[[Operator], Awaitable[T]], patience_s: float = PATIENCE_S) -> T:
    """What the campus's coordinator answers; SetupError: it cannot be asked, or does not answer."""

    async def conversation() -> T:
        with trio.fail_after(patience_s):
            async with connected(campus.run_dir / SOCKET) as operator:
                return await what(operator)

    try:
        return trio.run(conversation, clock=MonotonicClock())
    except PermissionError as error:
        raise SetupError(f"only root may ask the coordinator of campus {campus.id}") from error
    except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
        raise SetupError(f"the coordinator of campus {campus.id} does not answer") from error


def _is_known(job: str, told: Status, folder: Path) -> bool:
    names = {each.job for each in told.jobs} | {each.job for each in told.ended}
    return job in names or bool(_attempts(folder, job))


def _attempts(folder: Path, job: str) -> list[Path]:
    """The logs of a job's attempts, in order."""
    found = [path for path in folder.iterdir() if path.name.rsplit(".", 2)[0] == job]
    return sorted(found, key=lambda path: int(path.name.rsplit(".", 2)[1]))


def _copy_on(path: Path, read: dict[Path, int]) -> None:
    """What has been added to a log since it was read; a head before its beginning, if it is not the first."""
    try:
        file = path.open("rb")
    except FileNotFoundError:  # nothing was written to it, and the attempt is over
        return
    with file:
        file.seek(read.get(path, 0))
        while data := file.read(READ_BYTES):
            if path not in read:
                sys.stdout.flush()
                os.write(1, f"== attempt {path.name.rsplit('.', 2)[1]}\n".encode())
            os.write(1, data)
            read[path] = file.tell()
