"""The virtual campus in machine code decides what it decides as Python, and is used only where nothing could be mixed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from bpf.caches import fingerprint
from experiments.runtime import native
from tests.native_digests import digests

pytestmark = pytest.mark.extra


@pytest.fixture
def built() -> Path:
    """The folder of this program's machine code; `make test` has built it."""
    if not native.folder().is_dir():
        reason = "not built: make native"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return native.folder()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without any module in it counts as built; nothing of this process is changed for good."""
    monkeypatch.setattr(native, "folder", lambda: tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    return tmp_path


def program(*lines: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_machine_code_decides_as_python_does_to_the_last_bit(built: Path) -> None:
    command = [sys.executable, "-m", "tests.native_digests", "--native"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as compiled:
        as_python = digests()
        told, _ = compiled.communicate()
    assert json.loads(told) == as_python
    assert len(set(as_python.values())) > 40


def test_all_modules_are_compiled_and_their_source_can_be_read(built: Path) -> None:
    told = program(
        "import json",
        "from experiments.runtime import native",
        "from bpf.caches import fingerprint",
        "from importlib import import_module",
        "assert native.prefer() and native.prefer()",
        "modules = [import_module(name) for name in native.MODULES]",
        "compiled = {m.__file__.rsplit('.', 1)[1] for m in modules} == {'so'}",
        "print(json.dumps([compiled, fingerprint((), *map(native.source, modules))]))",
    )
    assert json.loads(told) == [
        True,
        fingerprint((), *(native.source(import_module(name)) for name in native.MODULES)),
    ]


def test_nothing_is_preferred_that_is_not_built(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "MODULES", ("experiments.not_yet_imported",))
    elsewhere.rmdir()
    assert not native.prefer()
    elsewhere.mkdir()
    assert native.prefer()
    assert native.is_preferred()


@pytest.mark.parametrize(
    ("command", "is_native"),
    [
        (("measure", "--help"), False),
        (("simulate", "example:lab"), True),
        (("storm", "--seeds", "0:2", "--workers", "1"), True),
        (("reproduce", "A-fig8", "--quick"), True),
    ],
)
def test_commands_that_play_virtually_prefer_it(
    built: Path, tmp_path: Path, command: tuple[str, ...], is_native: bool
) -> None:
    told = program(
        "from experiments.runtime import native",
        "from experiments.cli.main import app",
        f"app([*{command!r}, '--out', {str(tmp_path)!r}], standalone_mode=False)",
        "print(native.is_preferred())",
    )
    assert told.splitlines()[-1] == str(is_native)
