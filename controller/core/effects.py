"""What the coordinator can do to its world. Performed in the order given, after the event is in the journal."""

from __future__ import annotations

from dataclasses import dataclass

from controller.core.facts import Fact
from testbed.messages import Accepted, Rejected, ToAgent


@dataclass(frozen=True, slots=True)
class Tell:
    """Say this to the agent of `host`; lost if it is not connected (its next Hello says where things stand)."""

    host: str
    message: ToAgent


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection to the agent of `host`: it has been silent for a whole lease."""

    host: str


@dataclass(frozen=True, slots=True)
class Record:
    """Append to the journal. All figures come from these and from nothing else."""

    fact: Fact


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a submission."""

    operator: int
    message: Accepted | Rejected


Effect = Tell | Disconnect | Record | Answer
