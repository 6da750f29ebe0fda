"""What is compiled is kept where it can be written, is made once, and is never taken for that of other sources."""

import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest

from bpf import build, caches
from controller import warm_up


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the BPF sources, with nothing compiled; clang is counted."""
    shutil.copytree(build.SOURCES, tmp_path / "src")
    monkeypatch.setattr(build, "SOURCES", tmp_path / "src")
    monkeypatch.setattr(build, "OBJECTS", tmp_path / "objects")
    return tmp_path


@pytest.fixture
def clang(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that were compiled: by a stand-in that writes the name."""
    made: list[str] = []

    def compile_program(name: str, target: Path) -> None:
        made.append(name)
        target.write_text(name)

    monkeypatch.setattr(build, "compile_program", compile_program)
    return made


def test_objects_are_of_the_text_of_their_sources_not_of_its_age(sources: Path, clang: list[str]) -> None:
    build.build()
    for path in (sources / "src").iterdir():
        os.utime(path, (2e9, 2e9))  # an installer's, or a checkout's
    build.build()
    assert clang == list(build.PROGRAMS)
    header = next((sources / "src").glob("*.h"))
    header.write_text(header.read_text() + "\n")
    build.build()
    assert clang == 2 * list(build.PROGRAMS)
    assert len(list((sources / "objects").glob("*.bpf.o"))) == len(build.PROGRAMS), "the old ones are gone"


def test_what_a_killed_compiler_left_is_removed(sources: Path, clang: list[str]) -> None:
    (sources / "objects").mkdir()
    torn = sources / "objects" / "egress.0123.bpf.77.88.tmp"
    torn.touch()
    build.build()
    assert not torn.exists()


def test_a_folder_that_cannot_be_written_is_stood_in_for_by_a_private_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    caches.private_cache.cache_clear()
    assert caches.kept_beside(tmp_path / "free") == tmp_path / "free"
    assert caches.kept_beside(tmp_path / "file" / "objects") == tmp_path / "cache" / "reclaimnet" / "file" / "objects"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    caches.private_cache.cache_clear()
    private = caches.private_cache()
    assert private == tmp_path / f"reclaimnet-{os.getuid()}"
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    private.chmod(0o777)  # another could have written what would be loaded as code
    caches.private_cache.cache_clear()
    assert caches.private_cache() != private
    caches.private_cache.cache_clear()


def test_compiling_is_said_once_and_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warm_up, "FOLDER", str(tmp_path / "compiled"))
    monkeypatch.setattr(warm_up, "rehearse", lambda: print("rehearsed"))
    warm_up.compile_once()
    told = capsys.readouterr()
    assert ("compiling once" in told.err, told.out) == (True, "rehearsed\n")
    warm_up.compile_once()
    assert capsys.readouterr() == ("", "")


def test_sources_with_new_times_are_compiled_again_before_any_limit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "decides.py"
    source.touch()
    monkeypatch.setattr(warm_up, "FOLDER", str(tmp_path / "compiled"))
    monkeypatch.setattr(warm_up, "SOURCES", (source,))
    monkeypatch.setattr(warm_up, "rehearse", lambda: print("rehearsed"))
    warm_up.compile_once()
    os.utime(source, ns=(1, 1))
    capsys.readouterr()
    warm_up.compile_once()
    assert capsys.readouterr().out == "rehearsed\n"
