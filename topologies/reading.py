"""Reading of users' files: every way in which a file can be unreadable has its message."""

from __future__ import annotations

from pathlib import Path

from topologies.errors import SpecError, nearest

MAX_BYTES = 8 << 20  # a campus of 10 000 hosts is 2 MB


def read_text(path: Path, what: str = "a TOML file") -> str:
    """Return the text of a user's file of at most 8 MiB. SpecError: why it cannot be read, or that it is no UTF-8 text."""
    try:
        if not path.is_file():
            found = "is not a regular file" if path.exists() else "does not exist"
            near = (
                "" if path.exists() else nearest(path.name, (each.name for each in path.parent.glob(f"*{path.suffix}")))
            )
            raise SpecError("file", str(path), f"{what}; this {found}{near}")
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError("file", str(path), f"{what} that can be read ({reason})") from None
    if len(data) > MAX_BYTES:
        raise SpecError("file", str(path), f"{what} of at most {MAX_BYTES >> 20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        bad = data[error.start : error.start + 4]
        raise SpecError(f"line {line}", bad, f"UTF-8 text: {what} is not binary", str(path)) from None


def readable(name: str) -> str:
    """Return a name as UTF-8 text: bytes of a file's name that are none become replacement characters."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def example(name: str, folder: Path) -> Path:
    """Return the file of an example that the package brings; SpecError lists them."""
    known = example_names(folder)
    if name not in known:
        raise SpecError("example", name, f"one of {', '.join(known)}{nearest(name, known)}")
    return folder / f"{name}.toml"


def example_names(folder: Path) -> tuple[str, ...]:
    """Return the examples of a folder, by name."""
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))
