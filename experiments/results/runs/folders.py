"""Contents of a folder of results: runs, pages of other commands, and foreign files."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from experiments.results.summary import Summary
from topologies.decoding import UNDECODABLE
from topologies.errors import SpecError

SUMMARY, PAGE = "summary.json", "report.html"
PAGES = {
    "sweep.html": "a sweep",
    "measure.html": "benchmarks",
    "index.html": "claims of the papers, or an index",
}  # of commands that play several runs
MOST_BYTES = 4 << 20  # of a summary that is read
MOST_FOLDERS = 2000
DEPTH = 2  # of folders in folders


@dataclass(frozen=True, slots=True)
class ResultFolder:
    """A folder that a command wrote. `summary` and `provenance` are those of one run, where it was one."""

    name: str  # from the folder that was searched
    page: str | None  # from the folder that was searched
    changed_s: float
    summary: Summary | None = None
    provenance: dict[str, Any] | None = None
    fault: str = ""  # why a run's summary cannot be read

    def origin(self, what: str) -> str:
        """Return a line of the provenance; nothing where none was written."""
        return str((self.provenance or {}).get(what) or "")


def read_summary(path: Path) -> tuple[Summary, dict[str, Any]]:
    """Return a run's figures and their provenance; SpecError: the file cannot be one of this version."""
    allowed = "a summary.json that this version of the program wrote"
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            raise SpecError("summary", f"{found.st_size} bytes", allowed, str(path))
        data = path.read_bytes()
        provenance = json.loads(data).get("provenance")
        return msgspec.json.decode(data, type=Summary), provenance if isinstance(provenance, dict) else {}
    except (OSError, ValueError, AttributeError, *UNDECODABLE) as error:
        raise SpecError("summary", f"{error}", allowed, str(path)) from error


def result_folders(folder: Path) -> list[ResultFolder]:
    """Return the results in a folder, the latest first. Links, foreign folders and what cannot be read are passed over."""
    found = [each for path in _folders(folder, DEPTH) if (each := _result(folder, path)) is not None]
    return sorted(found, key=lambda each: (-each.changed_s, each.name))


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    left = MOST_FOLDERS
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if left and not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
            left -= 1
            yield Path(entry.path)
            if depth > 1 and not _is_file(Path(entry.path, SUMMARY)):
                yield from _folders(Path(entry.path), depth - 1)


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _result(root: Path, folder: Path) -> ResultFolder | None:
    name = folder.relative_to(root).as_posix()
    page = next((each for each in (PAGE, *PAGES) if _is_file(folder / each)), None)
    is_run = _is_file(folder / SUMMARY)
    if not (page or is_run):
        return None
    try:
        changed_s = (folder / (SUMMARY if is_run else page or PAGE)).stat().st_mtime
    except OSError:
        return None
    found = ResultFolder(name, f"{name}/{page}" if page else None, changed_s)
    if not is_run:
        return found
    try:
        summary, provenance = read_summary(folder / SUMMARY)
    except SpecError:
        return replace(found, fault="not readable: its summary is none, or another version's")
    return replace(found, summary=summary, provenance=provenance)
