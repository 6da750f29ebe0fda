"""A storm as text, to be read, shortened, replayed and kept.

    # a remark; those at the top describe the scenario.
    campus hosts=3 on_demand=1        where it happens; the first line. `setup.py` lists the options.
    settings policy=share             what differs from the usual settings of storms (fields of `Protocol` and `Queue`).
    4 reclaim @a 20                   TIME VERB ARGUMENTS, see `commands.py`.

Lines happen in the order of their times; those of one time in the order of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

from topologies.errors import SpecError

HEADS = ("campus", "settings")
FOLLOWS = "----\n"  # in a kept scenario the facts that followed stand below it


@dataclass(frozen=True, slots=True)
class Line:
    """An action at a time, seconds."""

    at_s: float
    verb: str
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([f"{self.at_s:.6g}", self.verb, *self.words])


@dataclass(frozen=True, slots=True)
class Script:
    """The ground of a storm, and its lines."""

    lines: tuple[Line, ...] = ()
    campus: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        heads = [("campus", self.campus), *([("settings", self.settings)] if self.settings else [])]
        return "".join(
            [
                *(f"# {remark}".rstrip() + "\n" for remark in self.remarks),
                *(" ".join([name, *map("=".join, options.items())]) + "\n" for name, options in heads),
                *(f"{line}\n" for line in self.lines),
            ]
        )

    def with_lines(self, lines: Iterable[Line]) -> Script:
        """Return the same ground with other lines, in order of time as `parse` has them."""
        return replace(self, lines=tuple(sorted(lines, key=lambda line: line.at_s)))


def parse(text: str, source: str = "script") -> Script:
    """Read the script of a text. SpecError: source and line, what it is and what is allowed."""
    heads: dict[str, dict[str, str]] = {name: {} for name in HEADS}
    remarks: list[str] = []
    lines: list[Line] = []
    for number, written in enumerate(text.partition(FOLLOWS)[0].splitlines(), 1):
        said, _, remark = written.partition("#")
        words = said.split()
        if not words:
            if remark and not lines:
                remarks.append(remark.strip())
        elif words[0] in heads:
            heads[words[0]] |= options_of(words[1:])
        else:
            lines.append(_line(words, f"{source}:{number}"))
    lines.sort(key=lambda line: line.at_s)
    return Script(tuple(lines), heads["campus"], heads["settings"], tuple(remarks))


def options_of(words: Iterable[str]) -> dict[str, str]:
    """Return the options of the form `key=value`."""
    return dict(word.split("=", 1) for word in words if "=" in word)


def _line(words: list[str], where: str) -> Line:
    try:
        at_s = float(words[0])
    except ValueError:
        raise SpecError(where, words[0], f"a time in seconds, or one of {', '.join(HEADS)}") from None
    if not isfinite(at_s) or at_s < 0.0 or len(words) < 2:
        raise SpecError(where, " ".join(words), "TIME VERB ARGUMENTS with a time of at least 0")
    return Line(at_s, words[1], tuple(words[2:]))
