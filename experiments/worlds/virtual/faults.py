"""What may go wrong by itself: functions that are handed in and asked at the moment concerned. Seeded by whoever makes them.

What somebody *does* to the world (kills, pauses, cuts, links that go down, disks that fill) are methods of `VirtualWorld`; `plan`
is called once, at the start, to put them on the heap. Rules of the transport hold whatever a fault says: messages of one
connection keep their order, and one that is lost takes its connection with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.worlds.virtual.world import VirtualWorld
    from testbed.agent.core.effects import StartSending, TakeSnapshot


class Lost:
    """The connection breaks with this message."""


LOST = Lost()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something did not work, and whether the same may work later."""

    reason: str
    retryable: bool = False


def _nothing_planned(world: VirtualWorld) -> None:
    """A world without faults."""


def _in_time(host: str, message: Any) -> float | Lost:
    return 0.0


def _sent(host: str, order: StartSending) -> Failure | None:
    return None


def _taken(host: str, order: TakeSnapshot) -> Failure | None:
    return None


def _started(host: str, job: str, attempt: int) -> Failure | None:
    return None


@dataclass(frozen=True, slots=True)
class Faults:
    """By default nothing fails.

    `message(host, message)`: seconds by which a message to or from a host's agent is late, or LOST. `sending`, `snapshot`,
    `workload`: the failure of a transfer (at its end), a snapshot, the start of a workload; None if it works.
    """

    plan: Callable[[VirtualWorld], None] = _nothing_planned
    message: Callable[[str, Any], float | Lost] = _in_time
    sending: Callable[[str, StartSending], Failure | None] = _sent
    snapshot: Callable[[str, TakeSnapshot], Failure | None] = _taken
    workload: Callable[[str, str, int], Failure | None] = _started

    @property
    def touches_messages(self) -> bool:
        """Whether messages may be late or lost, so that each must really be sent."""
        return self.message is not _in_time
