"""Errors, sorted by who must act. Expected outcomes (preempted, refused, agent lost) are events, never errors."""

from __future__ import annotations

from topologies.errors import SpecError, TestbedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CommandFailed",
    "InvariantBroken",
    "KernelMismatch",
    "LocalProtocolError",
    "ProtocolError",
    "RemoteProtocolError",
    "SetupError",
    "SpecError",
    "TestbedError",
]


class SetupError(TestbedError):
    """A machine that is not as required; the message names what is missing and which command mends it."""


class KernelMismatch(TestbedError):
    """A report of the kernel that differs from what was asked of it: the run is invalid."""

    def __init__(self, what: str, asked: object, found: object) -> None:
        self.what, self.asked, self.found = what, asked, found
        super().__init__(f"{what}: asked for {asked!r}, the kernel reports {found!r}")


class CommandFailed(TestbedError):
    """Failure of a command that the testbed ran."""

    def __init__(self, argv: Sequence[str], status: int, stderr: str) -> None:
        self.argv, self.status, self.stderr = tuple(argv), status, stderr
        super().__init__(f"{' '.join(argv)}: exit status {status}: {stderr.strip()}")


class ProtocolError(TestbedError):
    """A message that may not be sent or was not understood."""


class LocalProtocolError(ProtocolError):
    """A breach of the protocol that this side was about to commit: a bug here."""


class RemoteProtocolError(ProtocolError):
    """A breach of the protocol by the peer: close that connection, and only that one."""


class InvariantBroken(TestbedError):
    """A promise of the design that does not hold; carries the id of the thing, the rule and its story."""

    def __init__(self, subject: str, rule: str, story: Sequence[str] = ()) -> None:
        self.subject, self.rule, self.story = subject, rule, tuple(story)
        super().__init__("\n  ".join([f"{subject}: {rule}", *self.story]))
