"""Folders and names for what is compiled on this machine: beside its source, or in a cache of the user."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable
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


def made_once(folder: Path, name: str, make: Callable[[Path], object]) -> Path:
    """Return the file of this name in `folder`, or where that is kept; `make` writes it if there is none, to another name first.

    Processes and threads do it one after another. Files whose names begin alike are of other sources, or were begun by a process
    that was killed: they go.
    """
    if (folder / name).exists():
        return folder / name
    kept = kept_beside(folder)
    path = kept / name
    if not path.exists():
        with (kept / ".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                fresh = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
                make(fresh)
                for earlier in set(kept.glob(f"{name.partition('.')[0]}.*")) - {fresh}:
                    earlier.unlink(missing_ok=True)
                fresh.replace(path)
    return path


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
