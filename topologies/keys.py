"""Values of keys in files: how they are read from a table, checked (by msgspec), and written as TOML."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from topologies import toml
from topologies.dimension import Dimension
from topologies.errors import SpecError, nearest
from topologies.tables import NOTHING, Table
from topologies.units import plain


class Form(NamedTuple):
    """Form in a file of values that are no plain ones: laws, parts of a scenario."""

    is_one: Callable[[Any], bool]
    read: Callable[[Table, str], Any]
    text: Callable[[Any], str]
    inner: Any  # the dimension of a law, the class of parts, the kind of a table


@dataclass(frozen=True, slots=True)
class Kind:
    """Values that a key may have. `of` is their type for msgspec, `allowed` the same in words."""

    of: Any
    allowed: str
    limits: str = ""  # of a number, beside what is allowed
    dimension: Dimension | None = None  # of a number: in a file a text with its unit
    infinite: str | None = None  # the word in a file for a number without limit
    options: tuple[str, ...] | None = None  # the only texts
    single: bool = False  # of a list of texts: one may stand alone
    optional: bool = False  # None, or a key that is left out, is a value too
    form: Form | None = None
    takes: str = ""  # the kind of value, for the reference pages

    @property
    def each_once(self) -> bool:
        """True of lists of names, of which none may come twice."""
        return self.of is _NAMES

    def key(self, name: str) -> str:
        """Return the key in a file of the field `name`."""
        return name.removesuffix(self.dimension.units.suffix) if self.dimension else name

    def wrong(self, value: object) -> str | None:
        """Return what would be allowed, if this value is not."""
        if (value is None and self.optional) or (self.infinite and value == math.inf):
            return None
        if self.form:
            return None if self.form.is_one(value) else self.allowed
        if self.options is not None:
            is_one = isinstance(value, str) and value in self.options
            return None if is_one else self.allowed + nearest(value, self.options)
        try:
            msgspec.convert(value, self.of)
        except msgspec.ValidationError:
            return f"{self.allowed}{self.limits}"
        is_twice = self.each_once and isinstance(value, tuple) and len(set(value)) < len(value)
        return "names, each only once" if is_twice else None

    def read(self, table: Table, key: str, default: object = NOTHING) -> Any:
        """Return the value in a table, or the default where there is none; SpecError for any other value."""
        if default is not NOTHING and not table.has(key):
            return default
        value = table.take(key, self.allowed)
        if self.form:
            return self.form.read(table, key)
        if self.infinite and value == self.infinite:
            return math.inf
        if self.dimension is Dimension.NUMBER and self.of is not _NUMBERS:  # the owner of the number checks its limits
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (is_number and abs(value) < 1e300):
                raise table.wrong(key, self.allowed)
            return float(value)
        if self.dimension and self.of is not _NUMBERS:
            if not isinstance(value, str):
                raise table.wrong(key, f"{self.allowed}, in quotes and with its unit")
            try:
                return self.dimension.units.parse(value)
            except ValueError:
                raise table.wrong(key, self.allowed) from None
        if self.options is not None and (allowed := self.wrong(value)):
            raise table.wrong(key, allowed)
        try:
            return msgspec.convert((value,) if self.single and isinstance(value, str) and value else value, self.of)
        except msgspec.ValidationError:
            raise table.wrong(key, self.allowed) from None

    def text(self, value: Any) -> str:
        """Return the value as TOML."""
        if self.form:
            return self.form.text(value)
        if value == math.inf:
            return toml.quote(str(self.infinite))
        if isinstance(value, tuple | list):
            return f"[{', '.join(toml.quote(each) if isinstance(each, str) else plain(each) for each in value)}]"
        if self.dimension not in (None, Dimension.NUMBER):
            return toml.quote(self.dimension.units.text(value))
        if isinstance(value, str):
            return toml.quote(value)
        return str(value).lower() if isinstance(value, bool) else plain(value)


MAX_FACTOR = 1000.0  # of one thing over another
_NAMES: Any = tuple[str, ...]
_WORDS: Any = Annotated[tuple[str, ...], Meta(min_length=1)]
_NUMBERS: Any = Annotated[tuple[Annotated[float, Meta(ge=0.0, le=sys.float_info.max)], ...], Meta(min_length=1)]


def text(about: str = "a text, not empty", *, optional: bool = False) -> Kind:
    """Return the kind of texts that are not empty; `about` describes what they name."""
    return Kind(Annotated[str, Meta(min_length=1)], about, takes="text", optional=optional)


def choice(options: Iterable[str]) -> Kind:
    """Return the kind of some texts, or of the members of a StrEnum."""
    texts = tuple(map(str, options))
    takes = " or ".join(f'`"{option}"`' for option in texts)
    of = options if isinstance(options, type) else str
    return Kind(of, f"one of {', '.join(texts)}", options=texts, takes=takes)


def whole(low: int, high: int) -> Kind:
    """Return the kind of integers from low to high."""
    allowed = f"a whole number from {low} to {high}"
    return Kind(Annotated[int, Meta(ge=low, le=high)], allowed, takes=f"whole number, {low} to {high}")


def flag() -> Kind:
    """Return the kind of true and false."""
    return Kind(bool, "true or false", takes="`true` or `false`")


def number(
    dimension: Dimension,
    low: float = 0.0,
    high: float = math.inf,
    *,
    above: bool = False,
    infinite: str | None = None,
    about: str = "",
) -> Kind:
    """Return the kind of numbers from low to high (low itself excluded if `above`), with a unit in a file.

    `infinite` is the word that stands for infinity, if that makes sense; `about` describes what a plain number means.
    """
    most = min(high, sys.float_info.max)
    of = Annotated[float, Meta(gt=low, le=most) if above else Meta(ge=low, le=most)]
    limits = f", {'greater than' if above else 'at least'} {low:g}"
    limits += f" and at most {dimension.units.text(high)}" if high < math.inf else ""
    shown = f" to {dimension.units.text(high)}" if high < math.inf else ""
    shown = f", {'above' if above else 'from'} {low:g}{shown}" if low or shown else ""
    takes = f"{dimension.name.lower().replace('_', ' ')}{shown}" + (f', or `"{infinite}"`' if infinite else "")
    allowed = about or dimension.units.allowed + (f', or "{infinite}"' if infinite else "")
    return Kind(of, allowed, limits, dimension, infinite, takes=about or takes)


def texts(about: str = "a list of texts", *, single: bool = False, repeats: bool = False) -> Kind:
    """Return the kind of lists of texts; or of a text alone, if `single`; each only once, unless it `repeats`."""
    listed = "list of hosts" if "hosts" in about else "list of texts"
    takes = f"list of texts: {about}" if repeats else f"text or {listed}" if single else listed
    return Kind(_WORDS if repeats else _NAMES, about, single=single, takes=takes)


def numbers() -> Kind:
    """Return the kind of lists of numbers of at least 0, without dimension."""
    allowed = "a list of at least one number, each finite and at least 0"
    return Kind(_NUMBERS, allowed, dimension=Dimension.NUMBER, takes="list of numbers")


def factors(about: str) -> Kind:
    """Return the kind of tables of numbers above 0 by name, kept as pairs; `about` describes them."""
    table = Kind(dict[str, Annotated[float, Meta(gt=0.0, le=MAX_FACTOR)]], about)
    form = Form(
        lambda pairs: isinstance(pairs, tuple) and table.wrong(dict(pairs)) is None,
        lambda file, key: tuple(table.read(file, key).items()),
        lambda pairs: toml.inline((toml.key(name), plain(value)) for name, value in pairs),
        table,
    )
    return Kind(tuple, about, dimension=Dimension.NUMBER, form=form, takes="table of numbers")


def declared(kind: Kind, default: object = MISSING) -> Any:
    """Declare a field of this kind, a key of files."""
    metadata = {"kind": kind, "dimension": kind.dimension}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def optional(kind: Kind) -> Any:
    """Declare a value of this kind, None if it is left out."""
    return declared(replace(kind, optional=True), None)


def make_plain(part: Any) -> None:
    """Turn numbers of numpy's into Python's, of which files and facts are made; call it first in a frozen __post_init__."""
    for each in fields(part):
        value = getattr(part, each.name)
        if hasattr(value, "dtype"):
            object.__setattr__(part, each.name, value.item())


def check(part: Any, path: str) -> None:
    """Raise SpecError for the first field whose value is not allowed; call it in __post_init__.

    Numbers of numpy's become Python's (`make_plain`). Fields that are not declared are not checked.
    """
    make_plain(part)
    for each in fields(part):
        kind, value = each.metadata.get("kind"), getattr(part, each.name)
        if kind is not None and (allowed := kind.wrong(value)) is not None:
            raise SpecError(f"{path}.{kind.key(each.name)}", value, allowed)
