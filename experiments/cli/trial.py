"""`reclaimnet try`: a job played alone, saved, and resumed in another process, before any campus has it."""

from __future__ import annotations

import statistics
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from math import inf
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import trio

from testbed.errors import SpecError
from testbed.messages import JobSpec
from testbed.workloads.base import load_workload, params_of, write_parts
from testbed.workloads.launch import ForkServer
from testbed.workloads.lease import LeaseFile
from testbed.workloads.messages import Failed, Start, Started
from testbed.workloads.process import ProcessGone, SnapshotImpossible, WorkloadProcess
from testbed.workloads.returned import make_output_folder
from testbed.workloads.runner import digest_of
from topologies.units import format_duration, format_size

TRY_S, MAX_STEPS = 2.0, 50  # of computing before the state is saved


class Findings(NamedTuple):
    """Findings about a job. What they have of the first process and of the one that resumed it is compared."""

    step: int  # saved, or resumed
    step_s: float | None
    payload_bytes: int
    steps: int
    proof: bytes = b""  # of that step
    after: bytes = b""  # of the next


def try_job(job: JobSpec, folder: Path) -> list[str]:
    """Return the lines for the job's file, as measured. SpecError: a state that is saved is not the one that is loaded."""
    with TemporaryDirectory(prefix="reclaimnet-try-") as scratch:
        if job.program is not None:
            found = trio.run(_program, job, Path(scratch))
        else:
            found = _workload(job, folder, Path(scratch) / "state")
    step = "# not known: it writes no steps into RECLAIMNET_STEP_FILE"
    if found.step_s is not None:
        step = f'step = "{format_duration(found.step_s)}"'
    return [f"steps = {found.steps}", step, f'payload = "{format_size(found.payload_bytes)}"']


def _workload(job: JobSpec, folder: Path, state: Path) -> Findings:
    first = _in_new_process(job, folder, state, False)
    second = _in_new_process(job, folder, state, True)
    wrong = ""
    if second.step != first.step:
        wrong = f"`load` gives step {second.step}, and `save` was asked at step {first.step}"
    elif second.proof != first.proof:
        wrong = f"after `load` the digest of `verify` is another than before `save`, at step {first.step}"
    elif second.after != first.after:
        wrong = f"a step after `load` gives another state than the same step without: `save` loses a part of step {first.step}"
        if _in_new_process(job, folder, state, True).after != second.after:
            wrong = "`step` gives another state each time: no resumed job can be compared with one that was not moved"
    if wrong:
        raise SpecError("workload", job.workload, f"one that resumes where it was: {wrong}")
    return first


def _in_new_process(job: JobSpec, folder: Path, state: Path, resumes: bool) -> Findings:
    with ProcessPoolExecutor(1, get_context("fork")) as one:
        try:
            found = one.submit(_play, job, folder, state, resumes).result()
        except BrokenProcessPool:
            found = "its process was killed"
    if isinstance(found, str):
        raise SpecError("workload", job.workload, f"one that runs: {found}")
    return found


def _play(job: JobSpec, folder: Path, state: Path, resumes: bool) -> Findings | str:
    """Begin, step and save, or load; then verify, and step once more. Return what was found, or the reason why it failed."""
    sys.path[:0] = [str(folder), ""]
    stage, took_s = "__init__", [0.0]
    try:
        make_output_folder(job, str(state.parent))
        workload = load_workload(job.workload, params_of(job))
        stage = "load" if resumes else "begin"
        if resumes:
            workload.load(state)
        else:
            workload.begin()
            until_s = time.monotonic() + TRY_S
            while workload.step_number < min(MAX_STEPS, workload.steps_total - 1) and time.monotonic() < until_s:
                stage, began_s, before = "step", time.monotonic(), workload.step_number
                workload.step()
                took_s.append(time.monotonic() - began_s)
                if workload.step_number != before + 1:
                    return f"`step` made step_number {workload.step_number} of {before}"
            stage = "save"
            workload.save(state)
            if (parts := workload.parts()) is not None:
                write_parts(copy := state.with_suffix(".parts"), parts)
                if copy.read_bytes() != state.read_bytes():
                    return "`parts` are other bytes than `save` writes"
        step, stage = workload.step_number, "verify"
        proof, stage = digest_of(workload), "step"
        workload.step()
        stage = "verify"
        step_s = max(workload.step_s, statistics.median(took_s[1:] or took_s))
        return Findings(step, step_s, state.stat().st_size, workload.steps_total, proof, digest_of(workload))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's module may raise anything
        traceback.print_exc()
        return f"`{stage}` raised {type(error).__name__}: {error}"


async def _program(job: JobSpec, scratch: Path) -> Findings:
    state, log = scratch / "state", scratch / "log"
    with ForkServer(scratch) as forks, closing(LeaseFile.create(scratch / "lease", inf)) as lease:

        async def started(attempt: int, restore: str | None) -> WorkloadProcess:
            (folder := scratch / str(attempt)).mkdir()
            order = Start(job, attempt, restore, str(folder))
            process = await WorkloadProcess.start(order, lease=lease, log=log, launch=forks.launch)
            async for event in process:
                if isinstance(event, Started):
                    break
                raise _wrong(job, event.reason if isinstance(event, Failed) else "it ended", log)
            return process

        def told(attempt: int) -> int | None:
            with suppress(OSError, ValueError):
                return int((scratch / str(attempt) / "step").read_bytes())
            return None

        first = await started(1, None)
        began_s = time.monotonic()
        await trio.sleep(TRY_S)
        ran_s, step = time.monotonic() - began_s, told(1)
        try:
            with trio.fail_after(job.grace_s + TRY_S):
                taken = await first.snapshot(state, final=True)
        except trio.TooSlowError:
            raise _wrong(job, f"it took no checkpoint within {job.grace_s + TRY_S:g} s", log) from None
        except SnapshotImpossible as error:
            raise _wrong(job, str(error).removeprefix(f"{state}: "), log) from None
        except ProcessGone:
            reasons = [event.reason async for event in first if isinstance(event, Failed)]
            raise _wrong(job, (reasons or ["it finished instead"])[0], log) from None
        finally:
            await first.stop(0.0)
        second = await started(2, str(state))
        until_s = time.monotonic() + TRY_S
        while (resumed := told(2)) is None and time.monotonic() < until_s:  # the first that it tells
            await trio.sleep(0.01)
        with trio.move_on_after(TRY_S):
            async for event in second:
                if isinstance(event, Failed):
                    raise _wrong(job, f"resumed, {event.reason}", log)
        await second.stop(0.0)
        if resumed is not None and resumed < taken.step:
            raise _wrong(job, f"its checkpoint was of step {taken.step}, and it went on at step {resumed}", log)
    return Findings(taken.step, ran_s / step if step else None, state.stat().st_size, job.steps)


def _wrong(job: JobSpec, reason: str, log: Path) -> SpecError:
    sys.stderr.write(log.read_text(errors="replace"))
    assert job.program is not None
    return SpecError("command", job.program.command[0], f"one that resumes where it was: {reason}")
