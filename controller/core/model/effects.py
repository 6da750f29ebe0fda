"""Effects of the coordinator on its world. Performed in the order given, after the event is in the journal."""

from __future__ import annotations

from msgspec import Struct

from controller.core.model.facts import Fact
from testbed.messages import Accepted, Cancelled, Rejected, ToAgent


class Tell(Struct, frozen=True, gc=False):
    """A message to the agent of `host`; lost if it is not connected (its next Hello reports where things stand)."""

    host: str
    message: ToAgent


class Disconnect(Struct, frozen=True, gc=False):
    """The end of the connection to the agent of `host`: it has been silent for a whole lease."""

    host: str


class Record(Struct, frozen=True, gc=False):
    """An entry of the journal. All figures come from these and from nothing else."""

    fact: Fact


class Answer(Struct, frozen=True, gc=False):
    """The answer to a submission, or to its being taken back."""

    operator: int
    message: Accepted | Cancelled | Rejected


class PinnedWay(Struct, frozen=True, gc=False):
    """A numbered route by all of these nodes, for what the testbed sends from the first, a host, to the last."""

    number: int
    nodes: list[str]


class SetWays(Struct, frozen=True, gc=False):
    """An order to the network's controller to pin these ways and no others, and to lead nothing over trunks that are draining.

    `WaysSet` reports that it has done what it was ordered under this number.
    """

    number: int
    ways: list[PinnedWay]
    draining: list[tuple[str, str]]


class SetLoads(Struct, frozen=True, gc=False):
    """An order to the network's controller to share research by what grants take.

    Wire bytes/s from one switch to another; nothing over any other trunk.
    """

    loads: list[tuple[str, str, float]]


Effect = Tell | Disconnect | Record | Answer | SetWays | SetLoads
