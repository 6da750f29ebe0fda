"""Files that were written under sudo belong to its caller, not to root."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def caller() -> tuple[int, int] | None:
    """Return the user and group that sudo was called by; None without sudo, without root, or when root called it."""
    ids = [os.environ.get(name, "") for name in ("SUDO_UID", "SUDO_GID")]
    if os.geteuid() != 0 or not all(each.isascii() and each.isdigit() for each in ids) or int(ids[0]) == 0:
        return None
    return int(ids[0]), int(ids[1])


@contextmanager
def belonging_to_caller(written: Path) -> Iterator[None]:
    """Hand over what the block writes there, and the folders that it makes above, however the block ends."""
    above = [each for each in written.absolute().parents if not each.exists()]
    try:
        yield
    finally:
        user = caller()
        if user is not None and written.exists():
            hand_over(written, user)
            for made in above:
                with suppress(OSError):
                    os.chown(made, *user, follow_symlinks=False)


def hand_over(folder: Path, user: tuple[int, int]) -> None:
    """Give a folder and what root owns in it to a user: no link is followed, and no file that has a second name is given away.

    The user may write in the folder meanwhile: nothing is reached by a path that he could exchange.
    """
    parent = os.open(folder.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _give(folder.name, user, parent)
    finally:
        os.close(parent)
    for _, folders, files, descriptor in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            _give(name, user, descriptor)


def _give(name: str, user: tuple[int, int], within: int) -> None:
    with suppress(OSError):  # it is gone, or the file system knows no owners
        found = os.stat(name, dir_fd=within, follow_symlinks=False)
        has_one_name = stat.S_ISDIR(found.st_mode) or found.st_nlink == 1
        if found.st_uid == 0 and has_one_name:
            os.chown(name, *user, dir_fd=within, follow_symlinks=False)
