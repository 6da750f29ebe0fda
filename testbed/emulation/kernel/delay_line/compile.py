"""Compiling a C program of the tree where it is used: once for each version of its source."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from bpf.caches import fingerprint, kept_beside
from testbed.errors import CommandFailed, SetupError

SOURCE = Path(__file__).with_name("delay_line.c")
COMPILERS = ("cc", "clang", "gcc")
FLAGS = ("-O2", "-std=gnu17", "-Wall", "-Wextra", "-Werror")


def compiled(source: Path = SOURCE) -> Path:
    """The program, compiled now if this source has not been. SetupError: no compiler, or it refused the source."""
    name = f"{source.stem}.{fingerprint([source], *FLAGS)}"
    objects = source.with_name("objects")
    folder = kept_beside(objects)
    path = objects / name if (objects / name).exists() else folder / name
    if path.exists():
        return path
    compiler = next((name for name in COMPILERS if shutil.which(name)), None)
    if compiler is None:
        raise SetupError(
            f"{source.name} cannot be compiled here: no C compiler; mend it with: apt install clang"
        )
    with (folder / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            fresh = path.with_suffix(f".{os.getpid()}.tmp")
            command = [compiler, *FLAGS, str(source), "-o", str(fresh)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise CommandFailed(command, done.returncode, done.stderr)
            # of another version of this source, or begun by a process that was killed
            for earlier in folder.glob(f"{source.stem}.*"):
                if earlier != fresh:
                    earlier.unlink(missing_ok=True)
            fresh.replace(path)
    return path
