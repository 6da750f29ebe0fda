"""Folders and names for what is compiled on this machine: beside its source, or in a cache of the user."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

NAME = "reclaimnet"


def fingerprint(paths: Iterable[Path], *words: str) -> str:
    """Return 16 hexadecimal digits of the words and of the files' names and bytes, for the names of objects made of them."""
    digest = hashlib.sha256()
    for word in words:
        digest.update(f"{len(word)} {word}".encode())
    for path in paths:
        text = path.read_bytes()
        digest.update(f"{path.name} {len(text)} ".encode())
        digest.update(text)
    return digest.hexdigest()[:16]


def kept_beside(folder: Path) -> Path:
    """Return `folder`, made if need be, or a folder of the same name in the user's private cache if it cannot be written."""
    return folder if _is_writable(folder) else private_cache() / folder.parent.name / folder.name


@cache
def private_cache() -> Path:
    """Return $XDG_CACHE_HOME/reclaimnet or ~/.cache/reclaimnet, or a temporary one if neither can be written."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - HOME may be missing
    chosen = Path(base) / NAME
    if chosen.is_absolute() and _is_writable(chosen):
        return chosen
    shared = Path(tempfile.gettempdir()) / f"{NAME}-{os.getuid()}"  # so that the next process finds it too
    try:
        shared.mkdir(mode=0o700, exist_ok=True)
        found = shared.lstat()
    except OSError:
        return Path(tempfile.mkdtemp(prefix=f"{NAME}-"))
    # what lies there is loaded as code: no other user may have made it
    if found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077:
        return shared
    return Path(tempfile.mkdtemp(prefix=f"{NAME}-"))


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
