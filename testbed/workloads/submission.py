"""Check that some agent could run a job: done when it is submitted, so that none is accepted only to fail later."""

from __future__ import annotations

from typing import Final

import msgspec

from testbed.bounds import LONGEST_JOB_BYTES
from testbed.checkpoints.manifest import CHUNK_BYTES, MAX_CHUNKS
from testbed.errors import SpecError
from testbed.messages import JobSpec
from testbed.program import WITHIN, is_within, wrong
from testbed.workloads import criu
from testbed.workloads.base import BUILT_IN, load_workload, params_of, place_of

EXECUTABLE: Final = "executable"
# what no store can take; a chunk is left for what a workload adds to its payload
LARGEST_BYTES: Final = (MAX_CHUNKS - 1) * CHUNK_BYTES


def _check_program(spec: JobSpec) -> None:
    if spec.program is None:
        raise SpecError("command", None, f"needed: what an {EXECUTABLE} job runs")
    if spec.workload != EXECUTABLE:
        raise SpecError("workload", spec.workload, f'"{EXECUTABLE}", since there is a command')
    if spec.program.checkpoint_by == "criu" and spec.sandbox != "none":
        raise SpecError("sandbox", spec.sandbox, '"none", where CRIU saves the program: that has to run as root')
    if spec.params:
        raise SpecError("params", sorted(spec.params), "none: a command has its arguments and [environment]")
    if found := wrong(spec.program):
        raise SpecError(*found)


def cannot_run(spec: JobSpec) -> str:
    """Return the reason why no agent can run a job; "" if none is known. Third-party code is loaded by agents only."""
    try:
        size_bytes = len(msgspec.msgpack.encode(spec))
    except (ValueError, OverflowError) as error:  # a number of more than 64 bits, text that is none
        return f"it cannot be told to an agent: {error}"
    if size_bytes > LONGEST_JOB_BYTES:
        return f"its parameters, or its command and environment, take {size_bytes} bytes: at most {LONGEST_JOB_BYTES} are allowed"
    if spec.payload_bytes > LARGEST_BYTES:
        return f"payload_bytes = {spec.payload_bytes}: a checkpoint has at most {LARGEST_BYTES} bytes"
    return cannot_be_made(spec)


def cannot_be_made(spec: JobSpec) -> str:
    """Return the reason why the job is impossible even without a store (in virtual time); "" if it is possible."""
    try:
        if spec.output is not None and not is_within(spec.output):
            raise SpecError("output", spec.output, WITHIN)
        if spec.program is not None or spec.workload == EXECUTABLE:
            _check_program(spec)
        elif spec.workload in BUILT_IN:
            load_workload(spec.workload, params_of(spec))
        else:
            place_of(spec.workload)
    except SpecError as error:
        return str(error)
    return ""


def is_saved_from_outside(spec: JobSpec) -> bool:
    """Return True if the machine itself must checkpoint its program."""
    return spec.program is not None and spec.program.checkpoint_by == "criu"


def cannot_save(spec: JobSpec) -> str:
    """Return the reason why nothing on this machine can; "" if it can, or need not. Takes a moment."""
    if is_saved_from_outside(spec):
        try:
            criu.command()
        except OSError as error:
            return f'checkpoint_by = "criu": {error}'
    return ""
