"""What the value of a key in a file may be: how it is read from a table, checked, and written as TOML."""

from __future__ import annotations

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from topologies import toml
from topologies.dimension import Dimension
from topologies.tables import NOTHING, Table, allowed_text
from topologies.units import plain


@dataclass(frozen=True, slots=True)
class Kind(ABC):
    """A value that is in a file as it is in the program; other kinds override `read`."""

    def key(self, name: str) -> str:
        """The key in a file of the field `name`."""
        return name

    @abstractmethod
    def allowed(self) -> str:
        """What is allowed, in words."""

    @abstractmethod
    def wrong(self, value: object) -> str | None:
        """What would be allowed, if this value is not."""

    def read(self, table: Table, key: str, default: object = NOTHING) -> Any:
        """The value in a table, or the default where there is none; SpecError for any other value."""
        value = table.take(key, self.allowed(), default)
        if value is not default and (allowed := self.wrong(value)):
            raise table.wrong(key, allowed)
        return value

    def text(self, value: Any) -> str:
        """The value as TOML."""
        return toml.quote(value)


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """A text that is not empty; `about` says what it names."""

    about: str = "a text, not empty"

    def allowed(self) -> str:
        return self.about

    def wrong(self, value: object) -> str | None:
        return None if isinstance(value, str) and value else self.about


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """One of some texts."""

    options: tuple[str, ...]

    def allowed(self) -> str:
        return f"one of {', '.join(self.options)}"

    def wrong(self, value: object) -> str | None:
        if isinstance(value, str) and value in self.options:
            return None
        near = difflib.get_close_matches(value, self.options, n=1) if isinstance(value, str) else []
        return f"{self.allowed()}; nearest: {near[0]}" if near else self.allowed()


@dataclass(frozen=True, slots=True)
class Whole(Kind):
    """An integer from low to high; None too if it may be left out."""

    low: int
    high: int
    optional: bool = False

    def allowed(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def wrong(self, value: object) -> str | None:
        if value is None and self.optional:
            return None
        good = isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high
        return None if good else self.allowed()

    def text(self, value: int) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Flag(Kind):
    """True or false."""

    def allowed(self) -> str:
        return "true or false"

    def wrong(self, value: object) -> str | None:
        return None if isinstance(value, bool) else self.allowed()

    def text(self, value: bool) -> str:
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class Quantity(Kind):
    """A number, in a file a text with its unit if it has a dimension; from low to high (low itself excluded if `above`).

    `infinite` is the word that stands for infinity, if that makes sense; `about` says what a plain number means. What is
    described checks the range.
    """

    dimension: Dimension
    low: float = 0.0
    high: float = math.inf
    above: bool = False
    infinite: str | None = None
    about: str = ""

    def key(self, name: str) -> str:
        return name.removesuffix(self.dimension.suffix)

    def allowed(self) -> str:
        return self.about or allowed_text(self.dimension, self.infinite)

    def wrong(self, value: object) -> str | None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            if value == math.inf and self.infinite:
                return None
            if (
                value < math.inf
                and (self.low < value if self.above else self.low <= value)
                and value <= self.high
            ):
                return None
        limits = f"{'greater than' if self.above else 'at least'} {self.low:g}"
        if self.high < math.inf:
            limits += f" and at most {self.high:g}"
        return f"{self.allowed()}, {limits}"

    def read(self, table: Table, key: str, default: object = NOTHING) -> Any:
        if not table.has(key) and default is not NOTHING:
            return default
        value = table.take(key, self.allowed())
        if self.infinite and value == self.infinite:
            return math.inf
        if self.dimension is Dimension.NUMBER:
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
                raise table.wrong(key, self.allowed())
            return float(value)
        if not isinstance(value, str):
            raise table.wrong(key, f"{self.allowed()}, in quotes and with its unit")
        try:
            return self.dimension.parse(value)
        except ValueError:
            raise table.wrong(key, self.allowed()) from None

    def text(self, value: float) -> str:
        if value == math.inf:
            return toml.quote(str(self.infinite))
        text = self.dimension.text(value)
        return text if self.dimension is Dimension.NUMBER else toml.quote(text)


@dataclass(frozen=True, slots=True)
class Texts(Kind):
    """A tuple of texts, in a file a list; or the text alone, if `single`; each only once, unless it `repeats`."""

    about: str = "a list of texts"
    single: bool = False
    repeats: bool = False

    def allowed(self) -> str:
        return self.about

    def wrong(self, value: object) -> str | None:
        if self.repeats:
            return None if isinstance(value, tuple) and value else self.about
        return None if isinstance(value, tuple) and len(set(value)) == len(value) else "names, each only once"

    def read(self, table: Table, key: str, default: object = NOTHING) -> Any:
        value = table.take(key, self.about, default)
        if self.single and isinstance(value, str) and value:
            return (value,)
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise table.wrong(key, self.about)
        return tuple(value)

    def text(self, value: Sequence[str]) -> str:
        return f"[{', '.join(map(toml.quote, value))}]"


@dataclass(frozen=True, slots=True)
class Numbers(Kind):
    """A tuple of numbers of at least 0, in a file a list."""

    def allowed(self) -> str:
        return "a list of at least one number, each finite and at least 0"

    def wrong(self, value: object) -> str | None:
        one = Quantity(Dimension.NUMBER)
        good = isinstance(value, tuple) and value and not any(map(one.wrong, value))
        return None if good else self.allowed()

    def read(self, table: Table, key: str, default: object = NOTHING) -> Any:
        value = table.take(key, self.allowed(), default)
        if not isinstance(value, list | tuple) or self.wrong(tuple(value)):
            raise table.wrong(key, self.allowed())
        return tuple(map(float, value))

    def text(self, value: Sequence[float]) -> str:
        return f"[{', '.join(map(plain, value))}]"


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a section: what it may be, what it means, and its default (NOTHING: it is required; None: it may be absent)."""

    kind: Kind
    meaning: str
    default: object = NOTHING


class Section(dict[str, Key]):
    """The keys of a section, by name."""

    def read(self, table: Table, name: str) -> Any:
        """The value of a key; SpecError."""
        key = self[name]
        return key.kind.read(table, name, key.default)

    def inline(self, **values: Any) -> str:
        """The section as an inline table, without the keys whose value is None."""
        return toml.inline((n, self[n].kind.text(v)) for n, v in values.items() if v is not None)
