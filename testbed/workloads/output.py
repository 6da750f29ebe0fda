"""Files of attempts' stdout and stderr: one each, JOB.ATTEMPT.log.

A file that stays empty is removed when its attempt ends (not if the agent ends first). One that grows too long loses its
middle: what a job writes is bounded, and people look for what it wrote first and last. It is looked at once a second, so a job
may write more than the bound in between.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LONGEST_BYTES: Final = 64 << 20  # of a log
HEAD_BYTES, TAIL_BYTES = 1 << 20, 4 << 20  # what is left of it then
LOOK_S: Final = 1.0


def output_file(folder: Path, job: str, attempt: int, kind: str = "log") -> Path:
    """Return the file of an attempt."""
    return folder / f"{job}.{attempt}.{kind}"


def output_files(folder: Path, job: str, kind: str = "log") -> dict[int, Path]:
    """Return the files of a job that are there, by attempt, in order."""
    parts = [(path, path.name.rsplit(".", 2)) for path in folder.glob(f"[!.]*.*.{kind}")]
    return dict(sorted((int(attempt), path) for path, (name, attempt, _) in parts if name == job))


def shorten(path: Path) -> bool:
    """Cut the middle out of a log that has grown too long, with a remark in its place; return True if it was cut.

    Its writers append (O_APPEND), so they go on behind what is left; what they write in this very moment may be lost.
    OSError passes.
    """
    with path.open("r+b", buffering=0) as log:
        size = os.fstat(log.fileno()).st_size
        if size <= LONGEST_BYTES:
            return False
        log.seek(size - TAIL_BYTES)
        tail = log.read(TAIL_BYTES)
        log.truncate(HEAD_BYTES)
    dropped = size - HEAD_BYTES - len(tail)
    with path.open("ab", buffering=0) as log:
        log.write(f"\n[reclaimnet] the log reached {size} bytes: {dropped} were dropped here\n".encode())
        log.write(tail)
    return True
