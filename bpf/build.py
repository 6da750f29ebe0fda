"""`python -m bpf.build`: compiles src/*.bpf.c into objects/ where there is no object of these sources."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from bpf.caches import fingerprint, made_once
from bpf.errors import BpfError

HERE = Path(__file__).resolve().parent
SOURCES, OBJECTS = HERE / "src", HERE / "objects"
PROGRAMS = ("edge", "egress", "guests", "ingress", "observe", "port")
FLAGS = ("-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3")
INCLUDES = tuple(f"-I{path}" for path in sorted(Path("/usr/include").glob("*-linux-gnu")))
NEEDED = {  # file that must be there -> the Debian package that brings it
    Path("/usr/include/bpf/bpf_helpers.h"): "libbpf-dev",
    Path("/usr/include/linux/bpf.h"): "linux-libc-dev",
}


def source_hash(name: str) -> str:
    """Return the hash of all sources, since one may include another, and of how they are compiled."""
    return fingerprint(sorted(SOURCES.iterdir()), name, *FLAGS)


def built(name: str) -> Path:
    """Return the compiled program, compiled now if it has not been. BpfError names what is missing or wrong.

    Its name holds the hash of the sources, so it is never out of date.
    """
    return made_once(OBJECTS, f"{name}.{source_hash(name)}.bpf.o", partial(compile_program, name))


def build() -> list[Path]:
    """Return every compiled program. BpfError as `built`."""
    return [built(name) for name in PROGRAMS]


def check_tools() -> None:
    """Raise BpfError that names the package to install, if the compiler or a header is not there."""
    missing = [package for path, package in NEEDED.items() if not path.exists()]
    if shutil.which("clang") is None:
        missing.insert(0, "clang")
    if missing:
        raise BpfError(f"the BPF programs cannot be compiled here; mend it with: apt install {' '.join(missing)}")


def compile_program(name: str, target: Path) -> None:
    """Compile one program to `target`."""
    check_tools()
    argv = ["clang", *FLAGS, *INCLUDES, "-c", str(SOURCES / f"{name}.bpf.c"), "-o", str(target)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BpfError(f"clang refused {name}.bpf.c", log=done.stderr.strip())


if __name__ == "__main__":
    try:
        print(*build(), sep="\n")
    except BpfError as error:
        sys.exit(str(error))
