"""Well-formed lies: messages that every range of `testbed.bounds` allows, about what is there or nearly is."""

from __future__ import annotations

import random
import struct
import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from testbed import bounds

NAMES = ("a", "b", "x" * bounds.LONGEST_NAME, "nobody", "a.0of2", "a.1of2", "g.0of3")
WORDS = ("", "why", "w" * 4096, "\x1b[2J<script>alert(1)</script>\n")
FLOATS = (0.0, 5e-324, 1e-6, 0.05, 1.0, 3.0, 100.0, 1e6, 1e9, 1e12, 1e100)
INTEGERS = (0, 1, 2, 100, 999_999, 1_000_000, 1_000_001, 2**31, 2**50, 2**56, 2**62 - 1, 2**62, 2**63 - 1)


@dataclass
class Liar:
    """Draws values of declared types. `known` has what is true of names, numbers and words: half of what is drawn is of them."""

    draw: random.Random
    known: dict[str, Sequence[Any]] = field(default_factory=dict)

    def message(self, union: Any) -> Any:
        """One of the messages of a union."""
        return self.value(self.draw.choice(get_args(union) or (union,)), "")

    def value(self, kind: Any, name: str) -> Any:
        """Something that the type of a field of that name takes."""
        true = self.known.get(name)
        if true and self.draw.random() < 0.5 and bounds.within(one := self.draw.choice(true), kind):
            return one
        origin = get_origin(kind)
        if origin is Annotated:
            return self._annotated(kind)
        if origin is Literal:
            return self.draw.choice(get_args(kind))
        if origin in (Union, types.UnionType):
            return self.value(self.draw.choice(get_args(kind)), name)
        if origin in (list, tuple) or kind in (list, tuple):
            return self._sequence(kind, name)
        if origin is dict:
            key, of = get_args(kind)
            return {self.value(key, "job"): self.value(of, name) for _ in range(self.draw.randrange(3))}
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self.struct(kind)
        return self._plain(kind)

    def struct(self, kind: type[msgspec.Struct]) -> Any:
        """One message, with all its fields."""
        hints = get_type_hints(kind, include_extras=True)
        return kind(**{name: self.value(hints[name], name) for name in kind.__struct_fields__})

    def changed(self, message: Any) -> Any:
        """The same, with another value in one field."""
        kind = type(message)
        hints = get_type_hints(kind, include_extras=True)
        if not kind.__struct_fields__:
            return message
        name = self.draw.choice(kind.__struct_fields__)
        return msgspec.structs.replace(message, **{name: self.value(hints[name], name)})

    def _annotated(self, kind: Any) -> Any:
        of = kind.__origin__
        choices: Iterable[Any]
        if of is int:
            choices = INTEGERS
        elif of is float:
            choices = FLOATS
        elif of is str:
            choices = (*NAMES, *WORDS, "10.0.1.1", "127.0.0.1", "f" * 64)
        elif of is bytes:
            choices = (b"", b"x" * 32, b"x" * 64)
        else:
            for _ in range(20):
                if bounds.within(value := self.value(of, ""), kind):
                    return value
            raise AssertionError(f"nothing drawn is a {kind}")
        return self.draw.choice([value for value in choices if bounds.within(value, kind)])

    def _sequence(self, kind: Any, name: str) -> Any:
        arguments = get_args(kind)
        if get_origin(kind) is tuple and arguments[-1] is not ...:
            return tuple(self.value(each, name) for each in arguments)
        return [self.value(arguments[0], name) for _ in range(self.draw.choice((0, 1, 1, 2, 5)))]

    def _plain(self, kind: Any) -> Any:
        if kind is Any:
            return self.draw.choice((0, "x", 1.5, None))
        if kind is bool:
            return self.draw.random() < 0.5
        if kind is int:
            return self.draw.choice(INTEGERS)
        if kind is float:
            return self.draw.choice(FLOATS)
        if kind is str:
            return self.draw.choice((*NAMES, *WORDS))
        if kind is bytes:
            return self.draw.choice((b"", b"x" * 32, b"x" * 5000))
        assert kind is type(None), kind
        return None


def damaged(frame: bytes, draw: random.Random) -> bytes:
    """A frame with some of its bytes changed, left out, doubled, or with another length in its header."""
    data = bytearray(frame)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        place = draw.randrange(len(data)) if data else 0
        match draw.randrange(6):
            case 0:
                data[place : place + 1] = bytes([draw.randrange(256)])
            case 1:
                del data[place : place + draw.choice((1, 1, 4, 40))]
            case 2:
                data[place:place] = draw.randbytes(draw.choice((1, 1, 4, 40)))
            case 3:
                data[place:place] = data[place : place + draw.choice((1, 8, 80))]
            case 4:
                data[6:10] = struct.pack(
                    ">I", draw.choice((0, 1, len(data) - 10 & 0xFFFFFFFF, 1 << 20, 2**32 - 1))
                )
            case _:
                data[place : place + 1] = bytes([data[place] ^ 1 << draw.randrange(8)]) if data else b""
    return bytes(data)
