"""The interface of a journal that several coordinators may write: the writer of the next line leads.

A line has a number, and each number is written once. A coordinator that wants to lead writes the next line with a higher
epoch (`seize`). The next line of the one before then has a number that is taken: it is deposed, and ends. At most one
coordinator's decisions stand, for any clocks, pauses and partitions. Time decides only when a standby tries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from controller.core.model.events import Event
from controller.core.model.facts import Fact
from testbed.errors import SetupError, TestbedError


class Deposed(TestbedError):
    """Discovery that another coordinator has written the line that this one wanted to write: the other leads."""


class Missed(SetupError):
    """Absence of lines that a coordinator has not read: they have been dropped."""


class Entry(NamedTuple):
    """An event as it reached the coordinator, and the facts that followed from it."""

    at_s: float  # since the coordinator started first
    event: Event
    facts: Sequence[Fact] = ()


class LogLine(NamedTuple):
    """A line that stands. Without an event it is a sign of life, or the first of its epoch, and its time means nothing."""

    number: int
    epoch: int
    at_s: float
    event: Event | None


class Log(Protocol):
    """A journal, as it is written by one coordinator and followed by others. OSError: it cannot be reached or written."""

    number: int  # of the last line that was read or written here
    epoch: int  # that line's

    def append(self, entries: Iterable[Entry]) -> int:
        """Write events, or a sign of life if there are none; return the last number, when all stand. Deposed."""

    def follow(self, after: int) -> Iterator[LogLine]:
        """Yield lines beyond that number, in order, as far as they stand."""

    def seize(self, epoch: int) -> None:
        """Write the next line, as the first of a higher epoch. Deposed: another has written it."""

    def prune(self, before: int) -> None:
        """Forget what no coordinator needs that has read all lines before that number."""

    def close(self) -> None:
        """Write and read no more."""
