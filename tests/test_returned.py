"""Output folders of jobs: what comes back to a submitter, and what a hostile job cannot have brought."""

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio

from experiments.cli.submission import _bring
from testbed.agent.core import events as ev
from testbed.messages import JobSpec
from testbed.program import Program
from testbed.workloads import returned
from testbed.workloads.archive import ProgramProgress, pack
from tests.job_desk import agent_jobs
from tests.live_campus import needs_root

OUT = '"$RECLAIMNET_OUTPUT_DIRECTORY"'


def job(script: str, into: Path) -> JobSpec:
    program = Program(["sh", "-c", script])
    return JobSpec("a", 1, 1.0, 1, "executable", program=program, output="out/deep", returns_to=str(into))


async def ended(path: Path, spec: JobSpec) -> Any:
    """How an agent saw the job end; its logs and archives are in `path`/logs."""
    with agent_jobs(path) as jobs:
        async with trio.open_nursery() as nursery:
            jobs.begin(nursery, spec)
            return (await jobs.until(ev.WorkloadEnded)).ended


async def test_what_a_job_wrote_comes_back_whole_and_a_second_time_beside_it(tmp_path: Path) -> None:
    spec = job(f"cd out/deep && mkdir sub && echo one > sub/file && ln -s sub/file link && test $PWD = {OUT}", tmp_path)
    assert (await ended(tmp_path, spec)).outcome == "finished"
    for folder in ("a", "a_2"):
        _bring(spec, tmp_path / "logs")
        back = tmp_path / "out/deep" / folder
        assert ((back / "sub/file").read_text(), (back / "link").readlink()) == ("one\n", Path("sub/file"))
    assert sorted(path.name for path in (tmp_path / "out/deep").iterdir()) == ["a", "a_2"]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f"ln -s /etc/passwd {OUT}/l", "'l' links to '/etc/passwd', out of"),
        (f"ln -s ../../../x {OUT}/l", "out of its directory"),
        (f"rm -r {OUT} && ln -s /etc {OUT}", "has become a link"),
        ("rm -r out && mkdir -p ../x/deep && ln -s ../x out", "has become a link"),
        (f"head -c 5000 /dev/zero > {OUT}/big", "5000 bytes, and at most 4096 are allowed"),
        (f"truncate -s 1G {OUT}/big", "1073741824 bytes, and at most"),
        (f"mkfifo {OUT}/p", "'p' is no file"),
    ],
)
async def test_output_that_leads_elsewhere_or_is_too_large_does_not_come_back_and_the_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    monkeypatch.setattr(returned, "LARGEST_BYTES", 4096)
    spec = job(f"touch {OUT}/x; {script}", tmp_path / "mine")
    assert (await ended(tmp_path, spec)).outcome == "finished"
    assert why in (tmp_path / "logs/a.1.log").read_text()
    _bring(spec, tmp_path / "logs")
    assert [path.name for path in tmp_path.glob("logs/*a.*")] == ["a.1.log"]
    assert not list(tmp_path.glob("mine/out/deep/*"))


def attempt(tmp_path: Path, number: int, files: dict[str, str], links: dict[str, str]) -> None:
    (folder := tmp_path / f"attempt{number}").mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name, target in links.items():
        (folder / name).symlink_to(target)
    (tmp_path / "logs").mkdir(exist_ok=True)
    pack(folder, tmp_path / f"logs/a.{number}.output", ProgramProgress(0, told=False), 1 << 20)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that every user may enter, unlike those of pytest."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@needs_root
def test_of_several_attempts_the_later_file_comes_back_as_its_submitters(
    open_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of an earlier attempt is written through a link of a later one. A folder of root's is not written to."""
    attempt(open_path, 8, {"first": "8"}, {})
    attempt(open_path, 9, {"first": "9", "both": "9", "sub/x": "9", "far/y": "9"}, {"link": "first"})
    attempt(open_path, 10, {"both": "10", "other/z": "10"}, {"sub": "other"})
    home = open_path / "home"
    home.mkdir()
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1234")
    _bring(job("", home), open_path / "logs")
    assert list(home.iterdir()) == []
    assert "Permission denied" in (open_path / "logs/a.1.log").read_text()
    os.chown(home, 1234, 1234)
    _bring(job("", home), open_path / "logs")
    back = home / "out/deep/a"
    found = {str(path.relative_to(back)): path.read_text() for path in back.rglob("*") if path.is_file()}
    assert found == {"first": "9", "both": "10", "far/y": "9", "other/z": "10"}
    assert {path.lstat().st_uid for path in (home / "out").rglob("*")} == {1234}


def test_a_forged_archive_brings_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with tarfile.open(tmp_path / "logs/a.1.output", "w") as archive:
        archive.addfile(tarfile.TarInfo("../../outside"))
    _bring(job("", tmp_path / "mine"), tmp_path / "logs")
    assert list(tmp_path.rglob("outside")) == []
    assert list((tmp_path / "mine/out/deep").iterdir()) == []
    assert "could not be brought" in (tmp_path / "logs/a.1.log").read_text()
