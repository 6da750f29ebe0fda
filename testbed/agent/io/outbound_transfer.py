"""One transfer that an agent is sending: its guard in the kernel, and how much of its grant it got."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from testbed.enforcement import FlowGuard
from testbed.messages import FlowCount
from testbed.transfer import unacknowledged_bytes

# shorter transfers are mostly slow start and round trips: their goodput says nothing about the grant
LEAST_MEASURED_S, LEAST_MEASURED_BYTES = 0.5, 1 << 20
# a flow that is granted nothing at present trickles, and is there when it gets more
LEAST_RATE_BYTES_PER_S = 8192.0

MakeGuard = Callable[[socket.socket, float], FlowGuard]


@dataclass
class Outgoing:
    """What is known of a transfer while it runs.

    Goodput is what the receiver's kernel has acknowledged, at the last sample before the end, over the integral of the grant
    from the first byte to that sample: neither the sender's buffer nor the receiver's fsync counts.
    """

    transfer: str
    sequence: int  # of the checkpoint that it carries
    grant_bytes_per_s: float
    make_guard: MakeGuard
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    guard: FlowGuard | None = None
    began_s: float | None = None
    sent_bytes: int = 0
    drops: int = 0
    _sock: socket.socket | None = None
    _granted_bytes: float = 0.0
    _regranted_s: float = 0.0
    # (seconds, acknowledged, granted) since the first byte
    _sampled: tuple[float, int, float] = (0.0, 0, 0.0)

    def connected(self, sock: socket.socket) -> None:
        """The socket exists: pace it, and put its flow under the kernel's guard, before a byte leaves."""
        self.close()  # of a connection before, if there was one
        self._sock = sock
        self.guard = self.make_guard(sock, max(LEAST_RATE_BYTES_PER_S, self.grant_bytes_per_s))

    def progressed(self, sent_bytes: int, _total_bytes: int) -> None:
        """So many bytes were handed to the kernel."""
        if self.began_s is None:
            self.began_s = self._regranted_s = trio.current_time()
        self.sent_bytes = sent_bytes

    def regrant(self, rate_bytes_per_s: float) -> None:
        """Another rate from now on."""
        self._granted_bytes = self._granted_so_far()
        self._regranted_s = trio.current_time()
        self.grant_bytes_per_s = rate_bytes_per_s
        if self.guard is not None:
            self.guard.regrant(max(LEAST_RATE_BYTES_PER_S, rate_bytes_per_s))

    def close(self) -> None:
        """Take the flow out of the kernel's table; what it dropped stays known."""
        if self.guard is not None:
            last = self.guard.close()
            self.drops = last.dropped_packets if last is not None else self.drops
            self.guard = None

    def sample(self) -> None:
        """Note how far it is; called every 100 ms, and of no effect once everything has arrived."""
        if self.began_s is None or self._sock is None or self._sock.fileno() < 0:
            return
        unacknowledged = unacknowledged_bytes(self._sock)
        if unacknowledged:
            acknowledged = self.sent_bytes - unacknowledged
            self._sampled = (trio.current_time() - self.began_s, acknowledged, self._granted_so_far())

    def goodput_over_grant(self) -> float | None:
        """Payload acknowledged over payload granted; None if it was too short to tell."""
        lasted_s, acknowledged, granted = self._sampled
        if lasted_s < LEAST_MEASURED_S or acknowledged < LEAST_MEASURED_BYTES or granted <= 0.0:
            return None
        return acknowledged / granted

    def count(self) -> FlowCount:
        """For the heartbeat."""
        self.sample()
        traffic = self.guard.counters() if self.guard is not None else None
        drops = self.drops if traffic is None else traffic.dropped_packets
        lasted_s, acknowledged, _ = self._sampled
        return FlowCount(self.transfer, max(0, acknowledged), self.grant_bytes_per_s, drops, lasted_s)

    def _granted_so_far(self) -> float:
        if self.began_s is None:
            return 0.0
        return self._granted_bytes + self.grant_bytes_per_s * (trio.current_time() - self._regranted_s)
