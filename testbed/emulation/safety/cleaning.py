"""Removing what campuses of dead owners left, exactly what their ledgers list.

Processes are compared by pid and start time, because pids are reused. Processes that were started *inside* a host (a shell's
children) carry the campus's mark in their environment, and are found by it.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed import control_groups, identity
from testbed.emulation.safety.ledger import ENDS, MARK, note_end, owner_lives, read_entries
from testbed.emulation.safety.living import SUFFIX, default_root, ledgers
from testbed.linux import remove_folder

GONE_S = 5.0  # for which a killed process is waited for
REMOVERS = 8  # threads that remove files


@dataclass(slots=True)
class CleanReport:
    """Result of `clean_up`."""

    cleaned: list[str] = field(default_factory=list)  # ids of campuses of which nothing is left
    running: list[str] = field(default_factory=list)  # campuses left alone, with their owners
    removed: list[str] = field(default_factory=list)  # objects
    failed: list[str] = field(default_factory=list)  # objects that remain, and why


def clean_up(root: Path | None = None, *, include_running: bool = False) -> CleanReport:
    """Remove what campuses of dead owners left, exactly what their ledgers list; safe to repeat.

    A running campus is left alone and named in the report, unless `include_running`: then its owner is killed first.
    """
    report = CleanReport()
    for path in map(Path, ledgers(str(root or default_root()))):
        entries = read_entries(path)
        if owner_lives(entries):
            owner = entries[0]
            if not include_running:
                report.running.append(f"{owner['id']} (process {owner['pid']})")
                continue
            identity.kill_exactly(int(owner["pid"]), int(owner["start"]))
            _wait_gone([owner])
        remove_listed(path, entries, report)
    return report


def remove_listed(path: Path, entries: Sequence[dict[str, Any]], report: CleanReport) -> None:
    """Remove every object of a ledger, last made first, then the ledger; kept if something could not be removed."""
    campus_id = path.name.removesuffix(SUFFIX)
    failed_before = len(report.failed)
    # before it looks whether another needs a setting of the machine: of several that end together, one sees that none does
    note_end(path)
    same_boot = bool(entries) and entries[0].get("boot") == identity.boot_id()
    if same_boot:
        victims = [e for e in entries if e["kind"] == "process" and e.get("start")]
        victims += marked_processes(campus_id)
        killed = [e for e in victims if identity.kill_exactly(int(e["pid"]), int(e["start"]))]
        report.removed += [f"ended process {e['pid']} ({e.get('label', 'marked')})" for e in killed]
        report.failed += [f"process {e['pid']} does not die" for e in _wait_gone(killed)]
    for entry in reversed(entries):
        _remove_object(campus_id, entry, path, same_boot, report)
    if len(report.failed) == failed_before:
        path.unlink(missing_ok=True)
        report.cleaned.append(campus_id)


def marked_processes(campus_id: str) -> list[dict[str, Any]]:
    """Return processes whose environment carries the campus's mark."""
    wanted = f"{MARK}={campus_id}".encode()
    found = []
    for pid in identity.pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        started = identity.start_time(pid)
        if wanted in environment.split(b"\0") and started is not None and pid != os.getpid():
            found.append({"kind": "process", "pid": pid, "start": started, "label": "started inside a host"})
    return found


def _wait_gone(victims: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the victims that still live after GONE_S each."""
    for victim in victims:
        try:
            fd = os.pidfd_open(int(victim["pid"]))
        except OSError:
            continue
        try:
            if identity.is_alive(int(victim["pid"]), int(victim["start"])):
                poller = select.poll()
                poller.register(fd, select.POLLIN)
                poller.poll(GONE_S * 1e3)
        finally:
            os.close(fd)
    return [v for v in victims if identity.is_alive(int(v["pid"]), int(v["start"]))]


def _remove_object(campus_id: str, entry: dict[str, Any], path: Path, same_boot: bool, report: CleanReport) -> None:
    try:
        match entry["kind"]:
            case "pins" | "directory" if _is_own(entry["path"], campus_id):
                removed = remove_tree(Path(entry["path"]))
            case "limits" if same_boot and _is_own(entry["path"], campus_id):
                removed = control_groups.remove(Path(entry["path"]))
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
    """Return True if a directory's own name is the campus's, and it may be removed: a damaged ledger cannot name /home."""
    return Path(path).name == campus_id and ".." not in Path(path).parts


def remove_tree(path: Path) -> bool:
    """Remove the directory with its contents; return False if there was none. OSError: something remains."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(20, "is not a directory", str(path))
    # the files of hundreds of hosts: most of the time is the kernel's. RuntimeError: the interpreter ends, and begins no threads
    with contextlib.suppress(RuntimeError), ThreadPoolExecutor(REMOVERS) as pool:
        list(pool.map(shutil.rmtree, [part.path for part in os.scandir(path) if part.is_dir(follow_symlinks=False)]))
    try:
        shutil.rmtree(path)
    except RecursionError:
        remove_folder(path)
    return True


def restore_sysctl(entry: dict[str, Any], own_ledger: Path) -> bool:
    """Put a machine-wide setting back, if it still is what we set and no other running campus needs it."""
    for other in map(Path, ledgers(str(own_ledger.parent))):
        entries = read_entries(other) if other != own_ledger else []
        runs = owner_lives(entries) and entries[-1]["kind"] != ENDS
        if runs and any(e.get("path") == entry["path"] for e in entries):
            return False
    setting = Path(entry["path"])
    if setting.parts[:3] != ("/", "proc", "sys") or setting.read_text().strip() != entry["after"]:
        return False
    setting.write_text(entry["before"])
    return True
