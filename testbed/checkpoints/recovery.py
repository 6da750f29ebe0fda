"""Recovery of a store's directories after a crash or a hand: each checkpoint is completed or an attempt, nothing between.

A manifest that cannot be read, is filed under another name, or whose payload is missing or has another size is set aside and
reported: moved to QUARANTINE, where nothing reads it. So is a file whose number is no sequence: a checkpoint that no message can
name would make its host unacceptable to every coordinator. A payload without a manifest becomes a partial one; a manifest under
its first name is removed. What has no name of the store's is left alone.
"""

from __future__ import annotations

import re
import stat
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from testbed.bounds import LARGEST_SEQUENCE, is_name
from testbed.checkpoints.errors import BadManifest, CheckpointError
from testbed.checkpoints.manifest import DIGEST_BYTES, MAX_CHUNKS, Key, Manifest
from topologies.decoding import UNDECODABLE

FILE: Final = re.compile(r"(0|[1-9][0-9]{0,18})\.(payload|manifest|partial|manifest\.new)")
QUARANTINE: Final = ".quarantine"
# of a manifest on the disk: two bytes beside each hash, and names and numbers
_LONGEST_BYTES: Final = MAX_CHUNKS * (DIGEST_BYTES + 2) + 1024


def recover(root: Path) -> tuple[dict[Key, Manifest], list[str]]:
    """Return the completed checkpoints under `root`, and a line about each file that was set aside."""
    completed: dict[Key, Manifest] = {}
    damaged: list[str] = []
    for directory in sorted(root.iterdir()):
        job = directory.name
        if not is_name(job) or not directory.is_dir() or directory.is_symlink():
            continue
        found: dict[str, list[int]] = {"payload": [], "manifest": [], "partial": [], "manifest.new": []}
        for entry in sorted(directory.iterdir()):
            if name := FILE.fullmatch(entry.name):
                if int(name[1]) > LARGEST_SEQUENCE:
                    damaged.append(_set_aside(entry, f"a sequence is at most {LARGEST_SEQUENCE}"))
                elif not stat.S_ISREG(entry.lstat().st_mode):
                    damaged.append(_set_aside(entry, "not a regular file"))
                else:
                    found[name[2]].append(int(name[1]))
        for sequence in sorted(found["manifest"]):
            path = directory / f"{sequence}.manifest"
            try:
                completed[job, sequence] = _read(path, (job, sequence))
            except (*UNDECODABLE, CheckpointError, FileNotFoundError) as error:
                damaged.append(_set_aside(path, str(error)))
        for sequence in found["manifest.new"]:
            (directory / f"{sequence}.manifest.new").unlink()
        for sequence in found["payload"]:
            if (job, sequence) not in completed:  # its manifest never came, or went first: only an attempt
                (directory / f"{sequence}.payload").replace(directory / f"{sequence}.partial")
    return completed, damaged


def _set_aside(path: Path, problem: str) -> str:
    """Set the partial checkpoint aside; return the line that reports it."""
    folder = path.parent.parent / QUARANTINE
    folder.mkdir(exist_ok=True)
    names = (folder / f"{path.parent.name}.{path.name}.{number}" for number in count())
    target = next(name for name in names if not name.exists() and not name.is_symlink())
    path.rename(target)
    return f"{path}: {problem}; it is {target} now"


def _read(path: Path, key: Key) -> Manifest:
    """Return the manifest of a whole checkpoint. CheckpointError, UNDECODABLE, FileNotFoundError: it is not one."""
    size = path.stat().st_size
    if size > _LONGEST_BYTES:
        raise BadManifest(f"a manifest of {size} bytes: at most {_LONGEST_BYTES} are allowed")
    manifest = msgspec.msgpack.decode(path.read_bytes(), type=Manifest)
    manifest.validate()
    if manifest.key != key:
        raise BadManifest(f"it is of {manifest.job}/{manifest.sequence}")
    size = path.with_suffix(".payload").stat().st_size
    if size != manifest.payload_bytes:
        raise BadManifest(f"the payload has {size} bytes, not {manifest.payload_bytes}")
    return manifest
