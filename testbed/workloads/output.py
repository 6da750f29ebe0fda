"""Where attempts write their stdout and stderr: a file each, JOB.ATTEMPT.log.

One that stays empty is removed when its attempt ends (not if the agent ends first).
"""

from __future__ import annotations

from pathlib import Path


def output_file(folder: Path, job: str, attempt: int) -> Path:
    """The file of an attempt."""
    return folder / f"{job}.{attempt}.log"


def output_files(folder: Path, job: str) -> dict[int, Path]:
    """Those of a job that are there, by attempt, in order."""
    parts = [(path, path.name.rsplit(".", 2)) for path in folder.glob("*.*.log")]
    return dict(sorted((int(attempt), path) for path, (name, attempt, _) in parts if name == job))
