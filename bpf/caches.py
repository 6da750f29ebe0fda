"""Where what is compiled on this machine is kept: beside its source or, if that cannot be written, in a cache of the user."""

from __future__ import annotations

import os
import stat
import tempfile
from functools import cache
from pathlib import Path

NAME = "reclaimnet"


def kept_beside(folder: Path) -> Path:
    """`folder`, made if need be; if it cannot be written, one of the same name in the user's private cache."""
    return folder if _is_writable(folder) else private_cache() / folder.parent.name / folder.name


@cache
def private_cache() -> Path:
    """$XDG_CACHE_HOME/reclaimnet or ~/.cache/reclaimnet, or one for this process if neither can be written."""
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
    # what lies there is loaded as code: nobody else may have made it
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
