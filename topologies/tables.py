"""Taking values out of a TOML table, one key at a time, so that every mistake is named: which key, what was found, what
is allowed; a key that nobody asked for is an error too, with the nearest key that exists."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from topologies.dimension import Dimension
from topologies.errors import SpecError


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING: Any = _Nothing()  # what a missing value is shown as; as a default: the key is required


class Table:
    """A table of a description. `key` is its dotted path, for messages; every method raises SpecError."""

    def __init__(self, data: object, key: str = "") -> None:
        if not isinstance(data, dict):
            raise SpecError(key, shown(data), "a table")
        self.key, self._data = key, data
        self._asked: set[str] = set()

    def path(self, name: str) -> str:
        """The dotted path of a key of this table."""
        return f"{self.key}.{name}" if self.key else name

    def has(self, name: str) -> bool:
        """Whether the key is there; it is then known to `done`."""
        self._asked.add(name)
        return name in self._data

    def take(self, name: str, allowed: str, default: object = NOTHING) -> Any:
        """The raw value; the default, if there is none."""
        if self.has(name):
            return self._data[name]
        if default is NOTHING:
            near = difflib.get_close_matches(name, self._data, n=1, cutoff=0.7)
            hint = f" (there is {near[0]!r})" if near else ""
            raise SpecError(self.path(name), NOTHING, f"needed: {allowed}{hint}")
        return default

    def wrong(self, name: str, allowed: str) -> SpecError:
        """The error that says what this key should have been."""
        return SpecError(self.path(name), shown(self._data.get(name, NOTHING)), allowed)

    def text(self, name: str, allowed: str = "a text", default: str = NOTHING) -> str:
        """A string, not empty."""
        value = self.take(name, allowed, default)
        if not isinstance(value, str) or not value:
            raise self.wrong(name, allowed)
        return value

    def choice(self, name: str, options: Iterable[str], default: str = NOTHING) -> str:
        """One of the given texts."""
        known = [str(option) for option in options]
        value = self.take(name, f"one of {', '.join(known)}", default)
        if not isinstance(value, str) or value not in known:
            near = difflib.get_close_matches(value, known, n=1) if isinstance(value, str) else []
            hint = f"; nearest: {near[0]}" if near else ""
            raise self.wrong(name, f"one of {', '.join(known)}{hint}")
        return value

    def whole(self, name: str, low: int, high: int, default: int = NOTHING) -> int:
        """An integer from low to high."""
        allowed = f"a whole number from {low} to {high}"
        value = self.take(name, allowed, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(name, allowed)
        return value

    def number(self, name: str, allowed: str = "a finite number", default: float = NOTHING) -> float:
        """A finite float; ranges are checked by what is described."""
        value = self.take(name, allowed, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
            raise self.wrong(name, allowed)
        return float(value)

    def quantity(
        self, name: str, dimension: Dimension, default: float = NOTHING, *, infinite: str | None = None
    ) -> float:
        """A number with its unit, in a text; or the word that stands for infinity, where there is one."""
        if dimension is Dimension.NUMBER:
            return self.number(name, default=default)
        if not self.has(name) and default is not NOTHING:
            return default
        allowed = allowed_text(dimension, infinite)
        value = self.take(name, allowed)
        if infinite and value == infinite:
            return math.inf
        if not isinstance(value, str):
            raise self.wrong(name, f"{allowed}, in quotes and with its unit")
        try:
            return dimension.parse(value)
        except ValueError:
            raise self.wrong(name, allowed) from None

    def texts(
        self, name: str, allowed: str = "a list of texts", default: Sequence[str] = NOTHING
    ) -> tuple[str, ...]:
        """A list of strings."""
        value = self.take(name, allowed, default)
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, allowed)
        return tuple(value)

    def table(self, name: str) -> Table:
        """A table inside this one; an empty one if it is not there."""
        return Table(self.take(name, "a table", {}), self.path(name))

    def tables(self, name: str) -> Iterator[Table]:
        """The tables of a list ([[name]]), none if it is not there; each is called by its name, or its number."""
        value = self.take(name, f"a list of tables ([[{self.path(name)}]])", ())
        if not isinstance(value, list | tuple):
            raise self.wrong(name, f"a list of tables ([[{self.path(name)}]])")
        for number, item in enumerate(value, 1):
            called = item.get("name") if isinstance(item, dict) else None
            label = f".{called}" if isinstance(called, str) and len(called) <= 40 else f" #{number}"
            yield Table(item, f"{self.path(name)}{label}")

    def named(self, name: str) -> Iterator[tuple[str, Table]]:
        """The tables [name.X], as (X, table)."""
        group = self.table(name)
        for each in group._data:
            group.has(each)
            yield each, Table(group._data[each], group.path(each))

    def done(self) -> None:
        """Call when everything was taken: SpecError for the first key that means nothing here."""
        for name in self._data:
            if name not in self._asked:
                near = difflib.get_close_matches(name, self._asked, n=1)
                hint = f"no key of this name; nearest: {near[0]}; " if near else "no key of this name; "
                raise SpecError(
                    self.path(shown_text(name)),
                    shown(self._data[name]),
                    f"{hint}allowed here: {', '.join(sorted(self._asked))}",
                )


def allowed_text(dimension: Dimension, infinite: str | None = None) -> str:
    """What a value of this dimension may look like, in words."""
    if dimension is Dimension.NUMBER:
        return "a finite number"
    try:
        dimension.parse("")
    except ValueError as error:
        return f'{error}, or "{infinite}"' if infinite else str(error)
    raise AssertionError(dimension)  # an empty text is no quantity


def shown(value: object) -> object:
    """A value as an error message may show it: short, whatever the user wrote."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    return shown_text(value) if isinstance(value, str) else value


def shown_text(text: str) -> str:
    """The beginning of a text."""
    return text if len(text) <= 80 else f"{text[:77]}..."
