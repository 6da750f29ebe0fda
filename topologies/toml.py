"""Reading and writing TOML text, whatever it describes: every way in which a file can be unreadable has its message."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from topologies.errors import SpecError

MAX_BYTES = 8 << 20  # a campus of 10 000 hosts is 2 MB
_PLACE = re.compile(r"\(at line (\d+), column \d+\)")
# of a dotted key; a parser's memory grows with the square of their number
MAX_PARTS = 64
_LONG_KEY = re.compile(rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MAX_PARTS}}}""")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def read_bytes(path: Path, what: str = "a TOML file") -> bytes:
    """Return the bytes of a user's file of at most 8 MiB; SpecError gives the reason why it cannot be read."""
    try:
        if not path.is_file():
            found = "is not a regular file" if path.exists() else "does not exist"
            raise SpecError("file", str(path), f"{what}; this {found}")
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError("file", str(path), f"{what} that can be read ({reason})") from None
    if len(data) > MAX_BYTES:
        raise SpecError("file", str(path), f"{what} of at most {MAX_BYTES >> 20} MiB")
    return data


def read_text(path: Path, what: str = "a TOML file") -> str:
    """The text of a user's file; SpecError, with its source, if it is not UTF-8 text."""
    data = read_bytes(path, what)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = data[error.start : error.start + 4]
        raise SpecError(f"line {line}", found, f"UTF-8 text: {what} is not binary", str(path)) from None


def parse(text: str) -> dict[str, Any]:
    """The tables of a TOML text; SpecError names the line and shows it."""
    if long := _LONG_KEY.search(text):
        line = text.count("\n", 0, long.start()) + 1
        raise SpecError(f"line {line}", long[0][:40], f"TOML with keys of at most {MAX_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SpecError("TOML", text[:40], "values nested less deeply") from None
    except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
        place = _PLACE.search(str(error))
        number = int(place[1]) if place else text.count("\n") + 1
        lines = text.splitlines() or [""]
        shown = lines[min(number, len(lines)) - 1].strip()[:80]
        raise SpecError(f"line {number}", shown, f"TOML: {error}") from None


def quote(text: str) -> str:
    """A TOML basic string: JSON's, but for the one character that JSON does not escape."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def key(name: str) -> str:
    """A key: bare where TOML allows it."""
    return name if _BARE_KEY.fullmatch(name) else quote(name)


def inline(pairs: Iterable[tuple[str, str]]) -> str:
    """Return an inline table of values that are TOML already."""
    return "{ " + ", ".join(f"{key(name)} = {value}" for name, value in pairs) + " }"


def rows(name: str, tables: Iterable[str]) -> list[str]:
    """A list of inline tables, one a line."""
    return [f"{key(name)} = [", *(f"    {table}," for table in tables), "]"]


def example(name: str, folder: Path) -> Path:
    """The file of an example that the package brings; SpecError lists them."""
    known = example_names(folder)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; nearest: {near[0]}" if near else ""
        raise SpecError("example", name, f"one of {', '.join(known)}{hint}")
    return folder / f"{name}.toml"


def example_names(folder: Path) -> tuple[str, ...]:
    """The examples of a folder, by name."""
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))
