"""Reading and writing TOML text, whatever it describes: every way in which a file can be unreadable has its message."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from typing import Any

from topologies.errors import SpecError

NOT_TOML = "TOML: "
_PLACE = re.compile(r"\(at line (\d+), column \d+\)")
# of a dotted key; a parser's memory grows with the square of their number
MAX_PARTS = 64
_LONG_KEY = re.compile(rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MAX_PARTS}}}""")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def parse(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text; SpecError names the line and shows it."""
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
        raise SpecError(f"line {number}", shown, f"{NOT_TOML}{error}") from None


def quote(text: str) -> str:
    """Return a TOML basic string: JSON's, but for the one character that JSON does not escape."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def key(name: str) -> str:
    """Return a key: bare where TOML allows it."""
    return name if _BARE_KEY.fullmatch(name) else quote(name)


def inline(pairs: Iterable[tuple[str, str]]) -> str:
    """Return an inline table of values that are TOML already."""
    return "{ " + ", ".join(f"{key(name)} = {value}" for name, value in pairs) + " }"


def rows(name: str, tables: Iterable[str]) -> list[str]:
    """Return a list of inline tables, one a line."""
    return [f"{key(name)} = [", *(f"    {table}," for table in tables), "]"]
