"""The door of a service: connections come in once their peers have proved their names.

Until then a connection may be anybody's, so what it holds is bounded: in rate and number by the address it comes from, and in
number by a line in which all wait. What is turned away is counted and reported.

Ports below 1024 are root's: connections from these have bounds and a line of their own, so that no user of a host keeps an
agent out.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from testbed.bounds import quoted
from testbed.errors import ProtocolError, RemoteProtocolError
from testbed.peers import Allotment, Budget
from testbed.trust.channel import Identity, PartyRole, accepted

HANDSHAKE_S: Final = 5.0
HANDSHAKES: Final = 64  # under way at a time: each is a millisecond of the processor and 60 kB
HANDSHAKES_OF_ONE: Final = 16  # of an address: transfers to several GPUs begin together
PER_S, AT_ONCE = 20.0, 60.0  # connections of an address: a host that sends checkpoints of many jobs opens as many
REPORT_S: Final = 5.0  # between two reports: peers cause as many refusals as they like
MAX_SOURCES: Final = 1024  # that are known at a time
ROOT: Final = " (root)"

Report = Callable[[str, str, int], None]


class Refusals:
    """Peers that were refused, counted by where they came from; `report(source, reason, times)` gets the sums."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._counts: dict[str, tuple[str, int]] = {}

    def count(self, source: str, reason: str) -> None:
        """Count a refusal. The first reason of a source is reported for all."""
        if source not in self._counts and len(self._counts) >= MAX_SOURCES:
            source = "elsewhere"
        first, times = self._counts.get(source, (quoted(reason), 0))
        self._counts[source] = first, times + 1

    async def report(self) -> None:
        """Report what was counted, every REPORT_S, for ever."""
        while True:
            await trio.sleep(REPORT_S)
            counts, self._counts = self._counts, {}
            for source, (reason, times) in counts.items():
                self._report(source, reason, times)


class Door:
    """Admission of peers whose name has one of these roles. Without an identity all come in, and have no name.

    `for_joiners`: so does a peer that shows no certificate.
    """

    def __init__(
        self,
        identity: Identity | None = None,
        *roles: PartyRole,
        refusals: Refusals | None = None,
        of_one: int = HANDSHAKES_OF_ONE,
        in_all: int = HANDSHAKES,
        for_joiners: bool = False,
    ) -> None:
        self._for_joiners = for_joiners
        self._identity, self._roles, self._refusals = identity, roles, refusals
        self._of_one = Allotment(of_one, sys.maxsize)
        self._lines = {is_root: trio.CapacityLimiter(in_all) for is_root in (False, True)}
        self._budgets: dict[str, Budget] = {}

    @asynccontextmanager
    async def entering(self, stream: trio.abc.Stream, source: str) -> AsyncIterator[tuple[trio.abc.Stream, str]]:
        """Provide the conversation and the subject of its peer's name. The peer has a place in line until the context ends.

        RemoteProtocolError: it has too many connections, proves no name, or none of these roles. A ProtocolError of the
        context counts as a refusal as well.
        """
        try:
            with self._of_one.take(source) as granted:
                if not granted or not self._is_in_budget(source):
                    raise RemoteProtocolError("too many connections at once")
                async with self._lines[source.endswith(ROOT)]:
                    yield await self._name_of(stream)
        except ProtocolError as error:
            if self._refusals is not None:
                self._refusals.count(source, str(error))
            raise

    async def _name_of(self, stream: trio.abc.Stream) -> tuple[trio.abc.Stream, str]:
        if self._identity is None:
            return stream, ""
        with trio.move_on_after(HANDSHAKE_S):
            conversation, name = await accepted(stream, self._identity, *self._roles, joiners=self._for_joiners)
            return conversation, "" if name is None else name.subject
        raise RemoteProtocolError(f"no handshake within {HANDSHAKE_S:g} s")

    def _is_in_budget(self, source: str) -> bool:
        if source not in self._budgets and len(self._budgets) >= MAX_SOURCES:
            self._budgets.clear()
        budget, now_s = self._budgets.setdefault(source, Budget(PER_S, AT_ONCE)), trio.current_time()
        if budget.spend(1.0, now_s) <= 0.0:
            return True
        budget.spend(-1.0, now_s)
        return False


def address_in(source: str) -> str:
    """Return the address that `source_of` returned, without the mark of root's ports."""
    return source.removesuffix(ROOT)


def source_of(stream: Any) -> str:
    """Return the address of a connection's other end, and if its port is one of root's; a local socket has neither.

    BrokenResourceError: it was reset already, and has no other end.
    """
    try:
        name = stream.socket.getpeername()
    except OSError as error:
        raise trio.BrokenResourceError(str(error)) from error
    if not isinstance(name, tuple):
        return "a local process"
    return f"{name[0]}{ROOT if name[1] < socket.IPPORT_RESERVED else ''}"
