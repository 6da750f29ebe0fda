"""A transfer that an agent is sending: its guard in the kernel, and how much of its grant it got."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from testbed.agent.core.effects import StartSending
from testbed.bounds import TRICKLE_BYTES_PER_S
from testbed.enforcement import PARKED_BYTES_PER_S, FlowGuard
from testbed.messages import FlowCount
from testbed.transfer import SENDFILE_BYTES, UNSENT_BYTES, unacknowledged_bytes

# shorter transfers are mostly slow start and round trips: their goodput shows nothing about the grant
MIN_MEASURED_S, MIN_MEASURED_BYTES = 0.5, 1 << 20
# a flow that is granted less is parked: it hands over so much once a second, which shows that it lives
TRICKLE_S = 1.0
# of a grant that the socket holds unsent: what still leaves when the grant falls, and how long a sender may be off its processor
AHEAD_S, MIN_AHEAD_BYTES = 0.1, 256 << 10

MakeGuard = Callable[[socket.socket, float], FlowGuard]


@dataclass
class PacedSend:
    """State of a transfer while it runs.

    Goodput is the bytes that the receiver's kernel has acknowledged, over those that its rates allow. Both are from the
    first byte to the last sample before the end: neither the sender's buffer nor the receiver's fsync counts.
    """

    order: StartSending
    make_guard: MakeGuard
    grant_bytes_per_s: float = field(init=False)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    guard: FlowGuard | None = None
    began_s: float | None = None
    sent_bytes: int = 0
    drops: int = 0
    _sock: socket.socket | None = None
    _risen: trio.Event = field(default_factory=trio.Event)
    _connected_s: float | None = None  # or since when `_allowed_bytes` does not count
    _allowed_bytes: float = 0.0
    _allowed_before: float = 0.0  # the first byte
    # (seconds, acknowledged, allowed) since the first byte
    _sampled: tuple[float, int, float] = (0.0, 0, 0.0)

    def __post_init__(self) -> None:
        self.grant_bytes_per_s = self.order.rate_bytes_per_s

    def connected(self, sock: socket.socket) -> None:
        """Pace a new socket, and put its flow under the kernel's guard, before a byte leaves."""
        self.close()  # of a connection before, if there was one
        self._sock = sock
        if self._connected_s is None:
            self._connected_s = trio.current_time()
        self.guard = self.make_guard(sock, max(PARKED_BYTES_PER_S, self.grant_bytes_per_s))
        self._hold_ahead()

    @property
    def is_parked(self) -> bool:
        """True while its grant is zero."""
        return self.grant_bytes_per_s < TRICKLE_BYTES_PER_S

    async def allowance(self) -> int:
        """Return the number of bytes that the kernel may have now. A zero grant still permits a trickle, once a second."""
        if self.is_parked:
            with trio.move_on_after(TRICKLE_S):
                await self._risen.wait()
        return round(TRICKLE_BYTES_PER_S * TRICKLE_S) if self.is_parked else SENDFILE_BYTES

    def progressed(self, sent_bytes: int, _total_bytes: int) -> None:
        """Note that so many bytes were handed to the kernel."""
        if self.began_s is None:
            self.began_s, self._allowed_before = trio.current_time(), self.allowed_bytes()
        self.sent_bytes = sent_bytes

    def regrant(self, rate_bytes_per_s: float) -> None:
        """Change the rate. A parked transfer's bucket is closed as well once its socket is empty."""
        if self._connected_s is not None:
            self._allowed_bytes, self._connected_s = self.allowed_bytes(), trio.current_time()
        self.grant_bytes_per_s = rate_bytes_per_s
        if self.is_parked:
            if self._risen.is_set():
                self._risen = trio.Event()
            return
        self._risen.set()
        # a sender that connects again has closed its socket: the next one has this rate from its beginning
        if self.guard is not None and self._sock is not None and self._sock.fileno() >= 0:
            self.guard.regrant(rate_bytes_per_s)
            self._hold_ahead()

    def allowed_bytes(self) -> float:
        """Return the bytes that its rates since it was connected permit, even while the receiver had not let it begin."""
        if self._connected_s is None:
            return 0.0
        rate = max(TRICKLE_BYTES_PER_S, self.grant_bytes_per_s)
        return self._allowed_bytes + rate * (trio.current_time() - self._connected_s)

    def close(self) -> None:
        """Take the flow out of the kernel's table; what it dropped stays known."""
        if self.guard is not None:
            last = self.guard.close()
            self.drops = last.dropped_packets if last is not None else self.drops
            self.guard = None

    def sample(self) -> None:
        """Note how far it is; called every 100 ms, and of no effect once everything has arrived."""
        if self._sock is None or self._sock.fileno() < 0:
            return
        unacknowledged = unacknowledged_bytes(self._sock)
        if self.is_parked and not unacknowledged and self.guard is not None:
            self.guard.park()
        if unacknowledged and self.began_s is not None:
            acknowledged = self.sent_bytes - unacknowledged
            allowed = self.allowed_bytes() - self._allowed_before
            self._sampled = (trio.current_time() - self.began_s, acknowledged, allowed)

    def goodput_over_grant(self) -> float | None:
        """Return payload acknowledged over payload allowed; None if it was too short to measure."""
        lasted_s, acknowledged, allowed = self._sampled
        if lasted_s < MIN_MEASURED_S or acknowledged < MIN_MEASURED_BYTES:
            return None
        return acknowledged / allowed

    def count(self) -> FlowCount:
        """Return the transfer's counters, for the heartbeat."""
        self.sample()
        lasted_s, acknowledged, _ = self._sampled
        return FlowCount(self.order.transfer, max(0, acknowledged), lasted_s)

    def _hold_ahead(self) -> None:
        if self._sock is not None:
            ahead = min(UNSENT_BYTES, max(MIN_AHEAD_BYTES, round(self.grant_bytes_per_s * AHEAD_S)))
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, ahead)
