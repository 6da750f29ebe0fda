"""`python -m bpf.build`: compiles src/*.bpf.c into objects/ where there is no object of these sources. `--force` compiles all."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from bpf.caches import fingerprint, kept_beside
from bpf.errors import BpfError

HERE = Path(__file__).resolve().parent
SOURCES, OBJECTS = HERE / "src", HERE / "objects"
PROGRAMS = ("egress", "ingress", "observe", "port")
FLAGS = ("-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3")
INCLUDES = tuple(f"-I{path}" for path in sorted(Path("/usr/include").glob("*-linux-gnu")))
NEEDED = {  # file that must be there -> the Debian package that brings it
    Path("/usr/include/bpf/bpf_helpers.h"): "libbpf-dev",
    Path("/usr/include/linux/bpf.h"): "linux-libc-dev",
}


def object_path(name: str) -> Path:
    """Path of the compiled program (made or not yet): its name holds the hash of the sources, so it is never out of date."""
    file = f"{name}.{source_hash(name)}.bpf.o"
    return OBJECTS / file if (OBJECTS / file).exists() else kept_beside(OBJECTS) / file


def source_hash(name: str) -> str:
    """Hash of the program, of every header, and of how they are compiled."""
    return fingerprint([SOURCES / f"{name}.bpf.c", *sorted(SOURCES.glob("*.h"))], *FLAGS)


def is_stale(name: str) -> bool:
    """Return True if there is no object compiled from these sources."""
    return not object_path(name).exists()


def build(*, force: bool = False) -> list[Path]:
    """Compile what is stale (or everything) and return what it compiled; threads and processes do it one after another.

    BpfError says what is missing or wrong.
    """
    if not force and not any(map(is_stale, PROGRAMS)):
        return []
    check_tools()
    folder = kept_beside(OBJECTS)
    with (folder / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        names = [name for name in PROGRAMS if force or is_stale(name)]
        made = [compile_program(name, object_path(name)) for name in names]
        for name, path in zip(names, made, strict=True):
            for earlier in {*folder.glob(f"{name}.*")} - {
                path
            }:  # of other sources, or begun by a process that was killed
                earlier.unlink(missing_ok=True)
    return made


def check_tools() -> None:
    """BpfError that names the package to install, if the compiler or a header is not there."""
    missing = [package for path, package in NEEDED.items() if not path.exists()]
    if shutil.which("clang") is None:
        missing.insert(0, "clang")
    if missing:
        raise BpfError(
            f"the BPF programs cannot be compiled here; mend it with: apt install {' '.join(missing)}"
        )


def compile_program(name: str, target: Path, *defines: str) -> Path:
    """Compile one program to `target`, through a temporary name, so that a reader never sees half an object."""
    fresh = target.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
    wanted = [f"-D{word}" for word in defines]
    argv = ["clang", *FLAGS, *INCLUDES, *wanted, "-c", str(SOURCES / f"{name}.bpf.c"), "-o", str(fresh)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BpfError(f"clang refused {name}.bpf.c", log=done.stderr.strip())
    return fresh.replace(target)


def main() -> int:
    """Command line: prints what was compiled."""
    try:
        for path in build(force="--force" in sys.argv[1:]):
            print(f"compiled {path}")
    except BpfError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
