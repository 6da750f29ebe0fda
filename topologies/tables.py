"""Values taken out of a TOML table, one key at a time, so that every mistake is named.

An error gives the key, what was found and what is allowed. A key that is not asked for is an error too, with the
nearest key that exists.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from topologies.errors import SpecError, nearest


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
        """Return the dotted path of a key of this table."""
        return f"{self.key}.{name}" if self.key else name

    def has(self, name: str) -> bool:
        """Return whether the key is there; it is then known to `done`."""
        self._asked.add(name)
        return name in self._data

    def take(self, name: str, allowed: str, default: object = NOTHING) -> Any:
        """Return the raw value; the default, if there is none."""
        if self.has(name):
            return self._data[name]
        if default is NOTHING:
            near = difflib.get_close_matches(name, self._data, n=1, cutoff=0.7)
            hint = f" (there is {near[0]!r})" if near else ""
            raise SpecError(self.path(name), NOTHING, f"needed: {allowed}{hint}")
        return default

    def wrong(self, name: str, allowed: str) -> SpecError:
        """Return the error that names this key and the allowed values."""
        return SpecError(self.path(name), shown(self._data.get(name, NOTHING)), allowed)

    def table(self, name: str) -> Table:
        """Return a table inside this one; an empty one if it is not there."""
        return Table(self.take(name, "a table", {}), self.path(name))

    def tables(self, name: str) -> Iterator[Table]:
        """Yield the tables of a list ([[name]]), none if it is not there; each is called by its name, or its number."""
        value = self.take(name, f"a list of tables ([[{self.path(name)}]])", ())
        if not isinstance(value, list | tuple):
            raise self.wrong(name, f"a list of tables ([[{self.path(name)}]])")
        for number, item in enumerate(value, 1):
            called = item.get("name") if isinstance(item, dict) else None
            label = f".{called}" if isinstance(called, str) and len(called) <= 40 else f" #{number}"
            yield Table(item, f"{self.path(name)}{label}")

    def named(self, name: str) -> Iterator[tuple[str, Table]]:
        """Yield the tables [name.X], as (X, table)."""
        group = self.table(name)
        for each in group._data:
            group.has(each)
            yield each, Table(group._data[each], group.path(each))

    def done(self) -> None:
        """Call when everything was taken: SpecError for the first key that means nothing here."""
        for name in self._data:
            if name not in self._asked:
                near = nearest(name, self._asked)
                raise SpecError(
                    self.path(shown_text(name) or '""'),
                    shown(self._data[name]),
                    f"no key of this name{near}; allowed here: {', '.join(sorted(self._asked))}",
                )


def shown(value: object) -> object:
    """Return a value as an error message may show it: short, whatever the user wrote."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    return shown_text(value) if isinstance(value, str) else value


def shown_text(text: str) -> str:
    """Return the beginning of a text."""
    return text if len(text) <= 80 else f"{text[:77]}..."
