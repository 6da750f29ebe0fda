"""The ledger: what a crash leaves, and that cleaning removes exactly it."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import identity
from testbed.emulation.safety import cleaning, ledger, settings
from testbed.emulation.safety.cleaning import CleanReport, clean_up, remove_listed
from testbed.emulation.safety.ledger import Ledger
from testbed.emulation.safety.living import running_campuses
from testbed.emulation.safety.settings import WANTED, out_of_reach

DEAD = {"pid": 1 << 21, "start": 12345}  # above pid_max: never alive


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def dead_campus(
    root: Path, *entries: dict[str, object], campus_id: str = "dead1", tail: str = "", **owner: object
) -> Path:
    root.mkdir(exist_ok=True)
    owner = {"kind": "owner", "id": campus_id, "boot": identity.boot_id(), **DEAD, **owner}
    path = root / f"{campus_id}.ledger"
    path.write_text("".join(json.dumps(e) + "\n" for e in (owner, *entries)) + tail)
    return path


def started(pid: int) -> int:
    return identity.start_time(pid)


def test_listed_directory_and_process_of_a_dead_owner_are_removed(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    run_dir = tmp_path / "dead1"
    (run_dir / "logs").mkdir(parents=True)
    other = tmp_path / "other"
    other.mkdir()
    path = dead_campus(
        tmp_path,
        {"kind": "directory", "path": str(run_dir)},
        {"kind": "process", "pid": sleeper.pid, "start": started(sleeper.pid), "label": "agent"},
    )
    report = clean_up(tmp_path)
    assert report.cleaned == ["dead1"] and not report.failed
    assert not run_dir.exists() and not path.exists() and other.exists()
    assert sleeper.wait(60) == -9


@pytest.mark.parametrize("booted", [False, True])
def test_process_of_a_reused_pid_or_of_another_boot_is_left_alone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], booted: bool
) -> None:
    owner = {"boot": "another", "pid": os.getpid(), "start": started(os.getpid())} if booted else {}
    start = started(sleeper.pid) - (not booted)
    dead_campus(tmp_path, {"kind": "process", "pid": sleeper.pid, "start": start}, **owner)
    assert clean_up(tmp_path).cleaned == ["dead1"]
    assert sleeper.poll() is None


@pytest.mark.parametrize("tail", ['{"kind": "directory", "pa', "\x00\x00", "17\n", "[]\n", '{"kind": 3}\n'])
def test_torn_last_line_is_ignored(tmp_path: Path, tail: str) -> None:
    run_dir = tmp_path / "dead1"
    run_dir.mkdir()
    dead_campus(tmp_path, {"kind": "directory", "path": str(run_dir)}, tail=tail)
    report = clean_up(tmp_path)
    assert report.cleaned == ["dead1"] and not report.failed and not run_dir.exists()


@pytest.mark.parametrize("where", ["precious", "dead1/../precious", ""])
def test_directory_that_is_not_the_campus_own_is_left_alone(tmp_path: Path, where: str) -> None:
    (tmp_path / "precious").mkdir()
    dead_campus(tmp_path, {"kind": "directory", "path": str(tmp_path / where) if where else ""})
    clean_up(tmp_path)
    assert (tmp_path / "precious").exists()


def test_running_campus_is_left_alone_and_named(tmp_path: Path) -> None:
    run_dir = tmp_path / "live1"
    run_dir.mkdir()
    book = Ledger(tmp_path, "live1", name="small", run_dir=str(run_dir), hosts=["h1"], pin_dir="/pins/live1")
    book.record({"kind": "directory", "path": str(run_dir)})
    report = clean_up(tmp_path)
    assert report.cleaned == [] and report.running == [f"live1 (process {os.getpid()})"]
    assert run_dir.exists()
    (campus,) = running_campuses(str(tmp_path))
    assert (campus.id, campus.owner_pid, campus.hosts) == ("live1", os.getpid(), ["h1"])
    assert campus.switch_pin("h1") == "/pins/live1/h1/switch"
    book.close()


def test_marked_process_is_found_and_ended(tmp_path: Path) -> None:
    dead_campus(tmp_path, campus_id="marked1")
    mine = subprocess.Popen(["sleep", "60"], env={**os.environ, ledger.MARK: "marked1"})
    other = subprocess.Popen(["sleep", "60"], env={**os.environ, ledger.MARK: "marked11"})
    try:
        clean_up(tmp_path)
        assert mine.wait(60) == -9
        assert other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()


def test_ledger_that_cannot_be_cleaned_is_kept(tmp_path: Path) -> None:
    (tmp_path / "dead1").write_text("a file where the directory was")
    path = dead_campus(tmp_path, {"kind": "directory", "path": str(tmp_path / "dead1")})
    report = clean_up(tmp_path)
    assert report.cleaned == [] and "dead1" in report.failed[0] and path.exists()


def test_a_setting_that_a_campus_has_raised_is_known_to_the_next_as_it_was_and_is_never_lowered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, books = tmp_path / "limit", [Ledger(tmp_path / "run", name) for name in ("one1", "two1", "three1")]
    monkeypatch.setattr(settings, "WANTED", {limit: 100})
    for book, now in zip(books, (7, 100, 500), strict=True):
        limit.write_text(f"{now}\n")
        settings.raise_settings(book)
        assert int(limit.read_text()) == max(now, 100)
        assert ledger.read_entries(book.path)[-1]["before"] == "7"
        book.close()


@pytest.mark.skipif(bool(out_of_reach()), reason="the machine's settings cannot be written here")
def test_one_of_two_campuses_that_end_together_puts_a_setting_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = next(iter(WANTED))
    now = setting.read_text().strip()
    books, report = [Ledger(tmp_path, name) for name in ("one1", "two1")], CleanReport()
    for book in books:
        book.record({"kind": "sysctl", "path": str(setting), "before": now, "after": now})
        book.close()
    first, second = (book.path for book in books)

    def read_while_the_other_ends(path: Path) -> list[dict[str, object]]:
        monkeypatch.undo()
        remove_listed(second, ledger.read_entries(second), report)
        return ledger.read_entries(path)

    monkeypatch.setattr(cleaning, "read_entries", read_while_the_other_ends)
    remove_listed(first, ledger.read_entries(first), report)
    assert report.failed == []
    assert f"put back sysctl {setting}" in report.removed
    assert list(tmp_path.iterdir()) == []
