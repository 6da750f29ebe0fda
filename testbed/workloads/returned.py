"""The output folder of a job: packed where an attempt ended, unpacked in the folder of its submitter.

The archive lies beside the attempt's log, and goes where logs go: also where hosts are machines of their own. Its bytes are a
job's, so both sides read them as hostile (`archive`): bounded, no link leads out, sockets and devices are refused.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from testbed.errors import TestbedError
from testbed.messages import JobSpec
from testbed.workloads import criu
from testbed.workloads.archive import ProgramProgress, pack, unpack
from testbed.workloads.output import output_file, output_files
from testbed.workloads.submission import is_saved_from_outside

OUTPUT: Final = "RECLAIMNET_OUTPUT_DIRECTORY"  # the environment of a job: where it writes what comes back
LARGEST_BYTES: Final = 256 << 20  # of an attempt: packed within seconds
SUFFIX: Final = "output"


def make_output_folder(spec: JobSpec, folder: str) -> None:
    """Make the attempt's output folder, if the job has one, and name it in the environment."""
    if spec.output is not None:
        (written := Path(folder, _inside(spec))).mkdir(parents=True, exist_ok=True)
        os.environ[OUTPUT] = str(criu.PLACE / spec.output if is_saved_from_outside(spec) else written)


def _inside(spec: JobSpec) -> str:
    return f"{'kept/' if is_saved_from_outside(spec) else ''}work/{spec.output}"


def pack_output(spec: JobSpec, attempt: int, folder: Path, logs: Path) -> None:
    """Pack what the attempt wrote into an archive beside its log, whole or not at all; the log has the reason."""
    target = output_file(logs, spec.name, attempt, SUFFIX)
    scratch = target.with_name(f".{target.name}")
    try:
        scratch.unlink(missing_ok=True)
        written = folder.resolve() / _inside(spec)
        if written.resolve() != written:
            raise TestbedError("its folder has become a link")
        pack(written, scratch, ProgramProgress(0, told=False), LARGEST_BYTES)
        scratch.rename(target)
    except (TestbedError, OSError) as error:
        with suppress(OSError), output_file(logs, spec.name, attempt).open("a") as log:
            log.write(f"[reclaimnet] none of its output comes back: {error}\n")


def bring_output(job: str, logs: Path, into: Path, user: tuple[int, int] | None) -> None:
    """Unpack the archives of a job's attempts as the user's new folder `into`/JOB: of two files of a name the later one.

    It comes into being whole; where it is there already, as JOB_2. OSError, TestbedError: it does not. Call it in a process that
    ends after.
    """
    archives = [path.open("rb") for path in output_files(logs, job, SUFFIX).values()]
    if user is not None:  # whatever the user puts in the way, only the user's own files are reached
        os.setgroups([])
        os.setresgid(user[1], user[1], user[1])
        os.setresuid(user[0], user[0], user[0])
    if not archives:
        return
    into.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=into, prefix=".") as scratch:
        parts = [Path(scratch, str(number)) for number in range(len(archives))]
        for part, archive in zip(parts, archives, strict=True):
            part.mkdir()
            unpack(Path(archive.name), part, LARGEST_BYTES, archive)
        for part in reversed(parts[:-1]):
            _add_missing(part, parts[-1])
        target, number = into / job, 1
        while os.path.lexists(target):
            number += 1
            target = into / f"{job}_{number}"
        parts[-1].rename(target)


def _add_missing(older: Path, whole: Path) -> None:
    """Move files of an earlier attempt to where the later one has nothing, through no link."""
    for top, _, files in os.walk(older):
        for name in files:
            source = Path(top, name)
            target = whole.resolve() / source.relative_to(older)
            if not source.is_symlink() and not os.path.lexists(target) and target.resolve() == target:
                with suppress(FileExistsError, NotADirectoryError):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    source.rename(target)
