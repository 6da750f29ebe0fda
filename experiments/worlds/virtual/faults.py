"""Random faults: functions that are handed in and called at the moment concerned, seeded by their maker.

Deliberate faults (kills, pauses, cuts, links that go down, disks that fill) are methods of `VirtualWorld`; `simulate`
has a `plan` to put them on the heap. Rules of the transport hold under any fault: messages of one connection keep their
order, and a message is lost only with its connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.agent.core.effects import StartSending, TakeSnapshot


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure: its reason, whether a retry may work, and whether a sender's own copy is at fault."""

    reason: str
    retryable: bool = False
    own_fault: bool = False


def _in_time(host: str, message: Any) -> float:
    return 0.0


def _works(host: str, *order: Any) -> Failure | None:
    return None


@dataclass(frozen=True, slots=True)
class Faults:
    """Functions that decide faults. By default nothing fails; a result of None is success."""

    # (host, message): seconds by which a message to or from a host's agent is late.
    message: Callable[[str, Any], float] = _in_time
    sending: Callable[[str, StartSending], Failure | None] = _works  # of a transfer, at its end
    snapshot: Callable[[str, TakeSnapshot], Failure | None] = _works
    workload: Callable[[str, str, int], Failure | None] = _works  # (host, job, attempt): of its start

    @property
    def touches_messages(self) -> bool:
        """True if messages may be late, so that each must really be sent."""
        return self.message is not _in_time
