"""Compiling a C program of the tree where it is used: once for each version of its source."""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path

from bpf.caches import fingerprint, made_once
from testbed.errors import CommandFailed, SetupError

SOURCE = Path(__file__).with_name("delay_line.c")
COMPILERS = ("cc", "clang", "gcc")
FLAGS = ("-O2", "-std=gnu17", "-Wall", "-Wextra", "-Werror")


def compiled(source: Path = SOURCE) -> Path:
    """Return the program, compiled now if this source has not been. SetupError: no compiler, or it refused the source."""
    name = f"{source.stem}.{fingerprint([source], *FLAGS)}"
    return made_once(source.with_name("objects"), name, partial(_compile, source))


def _compile(source: Path, target: Path) -> None:
    compiler = next((name for name in COMPILERS if shutil.which(name)), None)
    if compiler is None:
        raise SetupError(f"{source.name} cannot be compiled here: no C compiler; mend it with: apt install clang")
    command = [compiler, *FLAGS, str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandFailed(command, done.returncode, done.stderr)
