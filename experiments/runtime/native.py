"""The virtual campus in machine code: mypyc compiles the modules that an event passes through, as they are, by annotations.

`make native` builds them in a minute or two. A program that calls `prefer` before it imports the virtual campus has all
of them compiled, and otherwise all as Python. Decisions are the same to the last bit; Python takes a quarter more
time. Builds are kept in a folder named by the text of the whole program, so after a change they are not used until
they are built again. Only virtual runs prefer it: live coordinators and agents, and programs that time them, are
Python.
"""

from __future__ import annotations

import inspect
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from bpf.caches import fingerprint

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).parent / "__pycache__"
PROGRAM = ("bpf", "controller", "experiments", "testbed", "topologies")
_QUICK = "built-quickly"
LIBRARY = "reclaimnet__mypyc"  # what all modules share
MODULES = tuple(
    f"{package}.{name}"
    for package, names in {
        "controller.core": "coordinator",
        "controller.core.admission": "reservation",
        "controller.core.lifecycle": "attempts candidates checkpoint_plans checkpoints finish grants "
        "job_reports membership migration offers protection second_copy ways",
        "controller.core.model": "cluster entities",
        "controller.core.network": "bandwidth sharing",
        "controller.core.queueing": "queue",
        "experiments.storms": "clock fault_windows judges world",
        "experiments.worlds.virtual": "background connections egress environment fluid ground_truth "
        "heartbeat_elision hosts invariants journal owners process_faults scheduler tick_elision transfers workloads world",
        "testbed.agent.core": "agent announced lease send_queue running speed",
        "testbed.model": "network",
    }.items()
    for name in names.split()
)


@cache
def folder() -> Path:
    """Return the folder of machine code for exactly this program and this interpreter."""
    files = (path for package in PROGRAM for path in sorted((ROOT / package).rglob("*.py")))
    return KEPT / f"native-{fingerprint(files, sys.version, sysconfig.get_platform())}"


@cache
def program() -> str:
    """Return a fingerprint of the text of the whole program, as it was when this process first asked."""
    return fingerprint(path for package in PROGRAM for path in sorted((ROOT / package).rglob("*.py")))


def prefer() -> bool:
    """Import modules as machine code from now on, if it is built. Whether it is.

    Compiled modules cannot be mixed with others: where one of them is imported already, all stay Python.
    """
    if is_preferred():
        return True
    if not folder().is_dir() or not sys.modules.keys().isdisjoint(MODULES):
        return False
    sys.meta_path.insert(0, _Finder(folder()))
    return True


def is_preferred() -> bool:
    """Return whether the virtual campus of this process is machine code."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


class _Finder(MetaPathFinder):
    """Finds the modules, and the library that they share, in a folder."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != LIBRARY and fullname not in MODULES:
            return None
        file = f"{self._place / fullname.replace('.', '/')}{sysconfig.get_config_var('EXT_SUFFIX')}"
        return spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, file))


def source(module: ModuleType) -> str:
    """Return the text of a module, whether it is machine code or not."""
    name = module.__name__
    return (ROOT / _source(name)).read_text() if name in MODULES else inspect.getsource(module)


def _source(name: str) -> str:
    return f"{name.replace('.', '/')}.py"


def ensure() -> str | None:
    """Build what is missing, in a process of its own. Why it could not be built, or None."""
    if folder().is_dir():
        return None
    built = subprocess.run([sys.executable, "-m", __name__], cwd=ROOT, capture_output=True, text=True)
    lines = [line for line in (built.stdout + built.stderr).splitlines() if line.strip()]
    return None if built.returncode == 0 else lines[-1] if lines else f"exit {built.returncode}"


def build(*, quickly: bool = False) -> Path:
    """Compile the modules, unless that is done; what was built of an earlier program is removed.

    `quickly`: sooner, and to slower code, which the next ordinary build replaces: for tests, which ask what it decides.
    ImportError: mypy is not installed (it is one of the extra `dev`); SystemExit or an error of setuptools: it does not compile.
    """
    if folder().is_dir() and (quickly or not (folder() / _QUICK).exists()):
        return folder()
    from mypyc.build import mypycify
    from setuptools import Distribution

    os.environ.setdefault("CC", "clang")  # half of gcc's time
    os.chdir(ROOT)
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT) as scratch:
        # what mypyc says on the way (which generators become lists) is said only if it fails
        said = io.StringIO()
        try:
            with redirect_stdout(said):
                extensions = mypycify(
                    [_source(name) for name in MODULES],
                    opt_level="0"
                    if quickly
                    else "1",  # what is left is calls of the interpreter, which no higher level makes quicker
                    debug_level="0",
                    group_name=LIBRARY.removesuffix("__mypyc"),
                    target_dir=f"{scratch}/source",
                )
        except SystemExit as failed:
            sys.exit(f"{said.getvalue()}{failed}")
        command = Distribution({"name": "native", "ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = f"{scratch}/made", f"{scratch}/objects"
        command.ensure_finalized()
        command.run()
        for earlier in KEPT.glob("native-*"):
            shutil.rmtree(earlier)
        if quickly:
            Path(scratch, "made", _QUICK).touch()
        Path(scratch, "made").rename(folder())
    return folder()


if __name__ == "__main__":
    print(build(quickly="--quickly" in sys.argv[1:]))
