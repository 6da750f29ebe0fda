"""What a crash left of a store's directories, sorted out: each checkpoint is either completed or an attempt, nothing between.

A manifest that cannot be read, is filed under another name, or whose payload is missing or has another size is removed and told
of. A payload without a manifest becomes a partial one; a manifest under its first name is removed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from testbed.checkpoints.errors import BadManifest, CheckpointError
from testbed.checkpoints.index import Key
from testbed.checkpoints.manifest import JOB, Manifest

FILE: Final = re.compile(r"(0|[1-9][0-9]{0,18})\.(payload|manifest|partial|manifest\.new)")


def recover(root: Path) -> tuple[dict[Key, Manifest], list[str]]:
    """The completed checkpoints under `root`, and a line about each damaged one."""
    completed: dict[Key, Manifest] = {}
    damaged: list[str] = []
    for directory in sorted(root.iterdir()):
        if JOB.fullmatch(directory.name) and directory.is_dir() and not directory.is_symlink():
            _recover_job(directory, completed, damaged)
    return completed, damaged


def _recover_job(directory: Path, completed: dict[Key, Manifest], damaged: list[str]) -> None:
    found: dict[str, set[int]] = {
        "payload": set(),
        "manifest": set(),
        "partial": set(),
        "manifest.new": set(),
    }
    for entry in directory.iterdir():
        if name := FILE.fullmatch(entry.name):
            found[name[2]].add(int(name[1]))
    for sequence in sorted(found["manifest"]):
        path = directory / f"{sequence}.manifest"
        try:
            completed[directory.name, sequence] = _read(path, (directory.name, sequence))
        except (msgspec.MsgspecError, UnicodeDecodeError, CheckpointError, FileNotFoundError) as error:
            damaged.append(f"{path}: {error}")
            path.unlink()
    for sequence in found["manifest.new"]:
        (directory / f"{sequence}.manifest.new").unlink()
    for sequence in found["payload"]:  # one whose manifest never came (or went first) is only an attempt
        if (directory.name, sequence) not in completed:
            (directory / f"{sequence}.payload").replace(directory / f"{sequence}.partial")


def _read(path: Path, key: Key) -> Manifest:
    """The manifest of a whole checkpoint. CheckpointError, MsgspecError, UnicodeDecodeError, FileNotFoundError: it is not one."""
    manifest = msgspec.msgpack.decode(path.read_bytes(), type=Manifest)
    manifest.validate()
    if manifest.key != key:
        raise BadManifest(f"it is of {manifest.job}/{manifest.sequence}")
    size = path.with_suffix(".payload").stat().st_size
    if size != manifest.payload_bytes:
        raise BadManifest(f"the payload has {size} bytes, not {manifest.payload_bytes}")
    return manifest
