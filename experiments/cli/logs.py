"""`reclaimnet logs`: the output of a job, attempt by attempt."""

from __future__ import annotations

import difflib
import os
import sys
import time
from pathlib import Path

from experiments.worlds.live.operator import JOB_LOGS, LOGS, PATIENCE_S, Operator, ask
from testbed.emulation.safety.living import only_campus
from testbed.errors import SpecError
from testbed.workloads.output import HEAD_BYTES, output_files

LOOK_S = 0.5  # between two looks at a log that is followed
READ_BYTES = 1 << 20


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
        ):  # its middle was dropped; a line behind what is left of its beginning marks that
            at = min(at, HEAD_BYTES)
        file.seek(at)
        while data := file.read(READ_BYTES):
            if path not in read:
                sys.stdout.buffer.write(f"== {head}\n".encode())
            sys.stdout.buffer.write(data)
            read[path] = file.tell()
    sys.stdout.flush()
