"""What a campus has made, on disk before it is made: so that a crash leaves a list, not a riddle.

One file of JSON lines a campus, `ROOT/ID.ledger`, appended and fsynced before each object is created (a process, whose pid is not
known before it exists, is recorded while it waits for leave to go on, and dies by itself if that leave never comes). The
first line names the owner: pid and start time. `clean_up` reads the ledgers of dead owners and removes what they list,
exactly; a line that was cut by the crash describes an object that was not created yet, so it is ignored.

Processes are compared by pid and start time, because pids are reused. Processes that were started *inside* a host (a shell's
children) carry the campus's mark in their environment, and are found by it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.clock import boot_id
from testbed.emulation.kernel import linux
from testbed.errors import SetupError

MARK = "RECLAIMNET_CAMPUS"  # environment variable of every program started inside a campus
PIN_ROOT = Path("/sys/fs/bpf/reclaimnet")
ROOTS = (Path("/run/reclaimnet"), Path("/tmp/reclaimnet"))  # of root's campuses, and of others'
SUFFIX = ".ledger"


def default_root() -> Path:
    """/run/reclaimnet, or /tmp/reclaimnet where /run cannot be written."""
    for root in ROOTS:
        if os.access(root.parent, os.W_OK):
            return root
    raise SetupError("neither /run nor /tmp can be written: run as root, or give root=")


@dataclass(frozen=True, slots=True)
class RunningCampus:
    """A campus on this machine."""

    id: str
    name: str  # of its description
    run_dir: Path
    owner_pid: int  # the process that made it
    hosts: tuple[str, ...]
    pin_dir: Path  # PIN_ROOT/id; a host's pins are in a folder of its name
    volunteers: tuple[str, ...] = ()  # the hosts that have an owner

    def switch_pin(self, host: str) -> Path:
        """The pinned map of a host's kill-switch."""
        return self.pin_dir / host / "switch"


@dataclass(slots=True)
class CleanReport:
    """Result of `clean_up`."""

    cleaned: list[str] = field(default_factory=list)  # ids of campuses of which nothing is left
    running: list[str] = field(default_factory=list)  # campuses left alone, with their owners
    removed: list[str] = field(default_factory=list)  # objects
    failed: list[str] = field(default_factory=list)  # objects that remain, and why


class Ledger:
    """The open ledger of one campus. `record` returns only when the line is on disk."""

    def __init__(self, root: Path, campus_id: str, **facts: Any) -> None:
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o755)
        self.path = root / f"{campus_id}{SUFFIX}"
        me = os.getpid()
        owner = {
            "kind": "owner",
            "pid": me,
            "start": linux.start_time(me),
            "boot": boot_id(),
            "id": campus_id,
            **facts,
        }
        scratch = self.path.with_suffix(f".{secrets.token_hex(4)}.new")
        self._fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.fchmod(self._fd, 0o644)  # whatever the umask: owners who are not root look for their hosts here
        self._write([owner])
        scratch.rename(self.path)
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def record(self, *entries: dict[str, Any]) -> None:
        """Append entries, each a dict with a `kind`; one fsync for all."""
        self._write(entries)

    def process(self, pid: int, label: str) -> dict[str, Any]:
        """An entry for a process that exists and waits."""
        return {"kind": "process", "pid": pid, "start": linux.start_time(pid), "label": label}

    def _write(self, entries: Iterable[dict[str, Any]]) -> None:
        data = "".join(json.dumps(entry) + "\n" for entry in entries).encode()
        while data:
            data = data[os.write(self._fd, data) :]
        os.fsync(self._fd)

    def fileno(self) -> int:
        """The descriptor (children close it)."""
        return self._fd

    def close(self) -> None:
        """Stop writing; the file stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_entries(path: Path) -> list[dict[str, Any]]:
    """Whole lines of a ledger, in order; a torn or foreign line is skipped."""
    entries = []
    for line in path.read_bytes().splitlines(keepends=True):
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if line.endswith(b"\n") and isinstance(entry, dict) and "kind" in entry:
                entries.append(entry)
    return entries


def owner_lives(entries: Sequence[dict[str, Any]]) -> bool:
    """Whether the campus's own process still runs."""
    owner = entries[0] if entries else {}
    if owner.get("kind") != "owner" or owner.get("boot") != boot_id():
        return False
    return linux.is_alive(int(owner["pid"]), int(owner["start"]))


def running_campuses(root: Path | None = None) -> list[RunningCampus]:
    """Campuses whose owner lives, oldest ledger first: those of `root`, or all that this user may know of."""
    found = []
    # root is not told where things are by what other users write
    roots = [root] if root else ROOTS if os.geteuid() else [default_root()]
    for path in (path for each in roots for path in _ledgers(each)):
        entries = read_entries(path)
        if owner_lives(entries):
            owner = entries[0]
            campus = RunningCampus(
                id=owner["id"],
                name=owner.get("name", ""),
                run_dir=Path(owner.get("run_dir", "")),
                owner_pid=owner["pid"],
                hosts=tuple(owner.get("hosts", ())),
                pin_dir=Path(owner.get("pin_dir", PIN_ROOT / owner["id"])),
                volunteers=tuple(owner.get("volunteers", ())),
            )
            found.append(campus)
    return found


def _ledgers(root: Path) -> list[Path]:
    try:
        return sorted(root.glob(f"*{SUFFIX}"), key=lambda p: p.stat().st_mtime)
    except FileNotFoundError:
        return []


def clean_up(root: Path | None = None, *, include_running: bool = False) -> CleanReport:
    """Remove what campuses of dead owners left, exactly what their ledgers list; safe to repeat.

    A running campus is left alone and named in the report, unless `include_running`: then its owner is killed first.
    """
    report = CleanReport()
    for path in _ledgers(root or default_root()):
        entries = read_entries(path)
        if owner_lives(entries):
            owner = entries[0]
            if not include_running:
                report.running.append(f"{owner['id']} (process {owner['pid']})")
                continue
            linux.kill_exactly(int(owner["pid"]), int(owner["start"]))
            _wait_gone([owner])
        remove_listed(path, entries, report)
    return report


def remove_listed(path: Path, entries: Sequence[dict[str, Any]], report: CleanReport) -> None:
    """Remove every object of a ledger, last made first, then the ledger; kept if something could not be removed."""
    campus_id = path.name.removesuffix(SUFFIX)
    failed_before = len(report.failed)
    same_boot = bool(entries) and entries[0].get("boot") == boot_id()
    if same_boot:
        victims = [e for e in entries if e["kind"] == "process" and e.get("start")]
        victims += marked_processes(campus_id)
        killed = [e for e in victims if linux.kill_exactly(int(e["pid"]), int(e["start"]))]
        report.removed += [f"ended process {e['pid']} ({e.get('label', 'marked')})" for e in killed]
        report.failed += [f"process {e['pid']} does not die" for e in _wait_gone(killed)]
    for entry in reversed(entries):
        _remove_object(campus_id, entry, path, same_boot, report)
    if len(report.failed) == failed_before:
        path.unlink(missing_ok=True)
        report.cleaned.append(campus_id)


def marked_processes(campus_id: str) -> list[dict[str, Any]]:
    """Processes whose environment carries the campus's mark."""
    wanted = f"{MARK}={campus_id}".encode()
    found = []
    for pid in linux.pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        started = linux.start_time(pid)
        if wanted in environment.split(b"\0") and started is not None and pid != os.getpid():
            found.append({"kind": "process", "pid": pid, "start": started, "label": "started inside a host"})
    return found


def _wait_gone(victims: Sequence[dict[str, Any]], timeout_s: float = 5.0) -> list[dict[str, Any]]:
    """Victims that still live after the timeout."""
    for victim in victims:
        try:
            fd = os.pidfd_open(int(victim["pid"]))
        except OSError:
            continue
        try:
            if linux.is_alive(int(victim["pid"]), int(victim["start"])):
                poller = select.poll()
                poller.register(fd, select.POLLIN)
                poller.poll(timeout_s * 1e3)
        finally:
            os.close(fd)
    return [v for v in victims if linux.is_alive(int(v["pid"]), int(v["start"]))]


def _remove_object(
    campus_id: str, entry: dict[str, Any], path: Path, same_boot: bool, report: CleanReport
) -> None:
    try:
        match entry["kind"]:
            case "pins" | "directory" if _is_own(entry["path"], campus_id):
                removed = _remove_tree(Path(entry["path"]))
            case "sysctl" if same_boot:
                removed = restore_sysctl(entry, path)
            case _:
                removed = False
    except OSError as error:
        report.failed.append(f"{entry['kind']} {entry.get('path')}: {error}")
        return
    if removed:
        done = "put back" if entry["kind"] == "sysctl" else "removed"
        report.removed.append(f"{done} {entry['kind']} {entry['path']}")


def _is_own(path: str, campus_id: str) -> bool:
    """A directory is removed only if its own name is the campus's: a damaged ledger cannot name /home."""
    return Path(path).name == campus_id and ".." not in Path(path).parts


def _remove_tree(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(20, "is not a directory", str(path))
    shutil.rmtree(path)
    return True


def restore_sysctl(entry: dict[str, Any], own_ledger: Path) -> bool:
    """Put a machine-wide setting back, if it still is what we set and no other running campus needs it."""
    for other in _ledgers(own_ledger.parent):
        entries = read_entries(other) if other != own_ledger else []
        if owner_lives(entries) and any(e.get("path") == entry["path"] for e in entries):
            return False
    setting = Path(entry["path"])
    if setting.parts[:3] != ("/", "proc", "sys") or setting.read_text().strip() != entry["after"]:
        return False
    setting.write_text(entry["before"])
    return True
