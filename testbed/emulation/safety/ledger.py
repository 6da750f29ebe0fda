"""Ledger of what a campus makes, on disk before it is made: so that a crash leaves a list, not a riddle.

One file of JSON lines a campus, `ROOT/ID.ledger`, appended and fsynced before each object is created. The pid of a
process is not known before it exists. So a process is recorded while it waits for leave to go on, and dies by itself if
that never comes. The first line names the owner: pid and start time, because pids are reused. `cleaning` reads the
ledgers of dead owners and removes what they list, exactly. A line that was cut by the crash describes an object that
was not created yet, so it is ignored. `living` finds the ledgers of living campuses, since an owner's command needs no
more than that.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from testbed import identity
from testbed.emulation.safety import living
from testbed.emulation.safety.living import SUFFIX

MARK = "RECLAIMNET_CAMPUS"  # environment variable of every program started inside a campus
PIN_ROOT = Path(living.PIN_ROOT)
ENDS = "ends"  # kind of the last entry of a campus that is being removed


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
            "start": identity.start_time(me),
            "boot": identity.boot_id(),
            "id": campus_id,
            **facts,
        }
        scratch = self.path.with_suffix(f".{os.urandom(4).hex()}.new")
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
        """Return an entry for a process that exists and waits."""
        return {"kind": "process", "pid": pid, "start": identity.start_time(pid), "label": label}

    def _write(self, entries: Iterable[dict[str, Any]]) -> None:
        data = "".join(json.dumps(entry) + "\n" for entry in entries).encode()
        while data:
            data = data[os.write(self._fd, data) :]
        os.fsync(self._fd)

    def fileno(self) -> int:
        """Return the descriptor (children close it)."""
        return self._fd

    def close(self) -> None:
        """Stop writing; the file stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_entries(path: Path) -> list[dict[str, Any]]:
    """Return whole lines of a ledger, in order; a torn or foreign line is skipped. None if it was put away this moment."""
    entries = []
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    for line in data.splitlines():
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and "kind" in entry:
                entries.append(entry)
    return entries


def note_end(path: Path) -> None:
    """Note in a ledger that its campus ends: what it needed is not needed any more."""
    with contextlib.suppress(OSError), path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(json.dumps({"kind": ENDS}).encode() + b"\n")


def owner_lives(entries: Sequence[dict[str, Any]]) -> bool:
    """Return True while the campus's own process runs."""
    return bool(entries) and living.lives(entries[0])
