"""Facts of a run kept on disk: added one by one while it runs, read back as often as is asked, the same to the last bit.

In memory a fact takes some 400 bytes, and 60 days of 500 hosts have a million of them. Here a run holds the last BLOCK of them,
and a reader one block more. Blocks are msgpack, which keeps every float (JSON has no infinite ones), in a file without a name:
it goes with its last reader, however the run ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from tempfile import TemporaryFile
from typing import Any, overload

import msgspec

from controller.core.model.facts import AnyFact

BLOCK = 1000  # facts: half a megabyte

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[tuple[float, AnyFact]])


class FactsOnDisk(Sequence[tuple[float, Any]]):
    """(seconds, fact) in order. OSError: the disk is full."""

    def __init__(self) -> None:
        self._file = TemporaryFile()  # noqa: SIM115
        self._blocks: list[tuple[int, int]] = []  # (offset, bytes) of BLOCK facts each
        self._last: list[tuple[float, Any]] = []  # those that are in no block yet
        self._read: tuple[int, list[tuple[float, Any]]] = (-1, [])  # the block that was read last, by number

    def append(self, timed: tuple[float, Any]) -> None:
        """One more."""
        self._last.append(timed)
        if len(self._last) == BLOCK:
            block = _ENCODER.encode(self._last)
            self._blocks.append((self._file.seek(0, os.SEEK_END), self._file.write(block)))
            self._file.flush()
            self._last = []

    def _block(self, number: int) -> list[tuple[float, Any]]:
        if number == len(self._blocks):
            return self._last
        if number != self._read[0]:
            offset, size = self._blocks[number]
            self._read = (number, _DECODER.decode(os.pread(self._file.fileno(), size, offset)))
        return self._read[1]

    def __len__(self) -> int:
        return BLOCK * len(self._blocks) + len(self._last)

    def __iter__(self) -> Iterator[tuple[float, Any]]:
        for number in range(len(self._blocks) + 1):
            yield from self._block(number)

    @overload
    def __getitem__(self, place: int) -> tuple[float, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> list[tuple[float, Any]]: ...
    def __getitem__(self, place: int | slice) -> tuple[float, Any] | list[tuple[float, Any]]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        number = place + len(self) if place < 0 else place
        if not 0 <= number < len(self):
            raise IndexError(place)
        return self._block(number // BLOCK)[number % BLOCK]

    def __delitem__(self, places: slice) -> None:
        """Delete those from a place on, and no others: a journal is cut at its end."""
        count = places.indices(len(self))[0]
        if places != slice(count, None):
            raise ValueError(f"{places}: only the end can be cut off")
        self._last = self._block(count // BLOCK)[: count % BLOCK]
        del self._blocks[count // BLOCK :]
        self._read = (-1, [])


Facts = list[tuple[float, Any]] | FactsOnDisk
