"""`python -m bpf.build`: compiles src/*.bpf.c into objects/*.bpf.o where a source is newer. `--force` compiles all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bpf.errors import BpfError

HERE = Path(__file__).resolve().parent
SOURCES, OBJECTS = HERE / "src", HERE / "objects"
PROGRAMS = ("egress", "ingress", "port")
FLAGS = ("-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3")
INCLUDES = tuple(f"-I{path}" for path in sorted(Path("/usr/include").glob("*-linux-gnu")))
NEEDED = {  # file that must be there -> the Debian package that brings it
    Path("/usr/include/bpf/bpf_helpers.h"): "libbpf-dev",
    Path("/usr/include/linux/bpf.h"): "linux-libc-dev",
}


def object_path(name: str) -> Path:
    """Where the compiled program lies."""
    return OBJECTS / f"{name}.bpf.o"


def is_stale(name: str) -> bool:
    """Whether the object is missing or older than any source or header."""
    target = object_path(name)
    sources = [SOURCES / f"{name}.bpf.c", *SOURCES.glob("*.h")]
    return not target.exists() or target.stat().st_mtime_ns < max(s.stat().st_mtime_ns for s in sources)


def build(*, force: bool = False) -> list[Path]:
    """Compiles what is stale (or everything) and returns what it compiled. BpfError says what is missing or wrong."""
    names = [name for name in PROGRAMS if force or is_stale(name)]
    if names:
        check_tools()
        OBJECTS.mkdir(exist_ok=True)
    return [compile_program(name, object_path(name)) for name in names]


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
    """Compiles one program to `target`, through a temporary name, so that a reader never sees half an object."""
    fresh = target.with_suffix(f".{os.getpid()}.tmp")
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
            print(f"compiled {path.relative_to(HERE.parent)}")
    except BpfError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
