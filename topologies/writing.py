"""Files of results: there as a whole or not at all, and an error names the file.

Python names the file where one cannot be opened, but not where it cannot be written. A full disk would be "No space
left on device" without a name, and half a page would look like a whole one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have an OSError that names no file name this one."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield a path beside the file's place; what is written there takes that place when the block has ended well.

    Anything but a regular file (a pipe, a link) is written as it is. OSError names the file, and leaves what was
    there before.
    """
    is_written_as_it_is = path.is_symlink() or (path.exists() and not path.is_file())
    scratch = path if is_written_as_it_is else path.with_name(f".{path.name}.{os.getpid()}")
    with naming(path):
        try:
            yield scratch
            if scratch != path:
                scratch.replace(path)
        except BaseException:
            if scratch != path:
                scratch.unlink(missing_ok=True)
            raise


def write_whole(path: Path, content: str | bytes | memoryview) -> None:
    """Write a file as a whole. OSError as `whole`."""
    with whole(path) as scratch:
        scratch.write_bytes(
            content.encode(errors="replace") if isinstance(content, str) else content
        )  # names need not be UTF-8
