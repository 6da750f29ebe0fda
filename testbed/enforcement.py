"""Enforcement of a grant by the kernel, and back: pace, then guard.

A bucket that drops when it is empty does not hold a TCP sender at its rate. The drop happens inside the sender's own
host and TCP sees "queue full". With nothing in flight it waits for a timer of 200 ms at least: goodput is about burst /
0.2 s, 5 to 50 % of the grant. So a grant becomes three things:

(a) a pacing rate on the socket (SO_MAX_PACING_RATE), which delays instead of dropping;
(b) a bucket a little above it in BPF, which allows one super-packet of debt. A flow that keeps its pacing never finds it
    empty. One that does not (another congestion control, a raw socket, a bug) cannot pass it;
(c) one aggregate bucket a host for all migrations, so that the research reserve holds even if the grants are wrong. Checkpoints
    that may exceed the share are not in it: every port serves them after the others.

Units: a grant is *payload* bytes/s, and so is the pacing rate (the kernel paces payload); buckets and shapers count
*wire* bytes (`topologies.units`).
"""

from __future__ import annotations

import errno
import socket
import struct
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Protocol

from bpf.layout import BucketMode, ClassId
from bpf.maps import FlowKey, HostMaps, Traffic
from testbed.errors import KernelMismatch, SetupError
from topologies.spec import TrafficClass
from topologies.units import WIRE_PER_PAYLOAD

# of the grant, so that goodput never exceeds it: a window may begin or end within a burst
PACING_SHARE = 0.995
GUARD_SLACK = 1.05  # bucket over pacing: short last segments, timers that catch up
GUARD_BURST_BYTES = 256 << 10  # four super-packets
# or this long at its rate, if more: a sender that was not scheduled for so long catches up
GUARD_BURST_S = 0.02
DROP_BURST_BYTES = 256 << 10  # depth of the literal bucket
# of a parked flow's bucket: some signs of life a second, and what the protocol sends before the first byte
PARKED_BYTES_PER_S = 65536.0
TSO_RTT_LOG = Path("/proc/sys/net/ipv4/tcp_tso_rtt_log")
SO_MAX_PACING_RATE = 47
UNPACED = (1 << 64) - 1
TCP_CONGESTION = 13
PREFERRED_CONGESTION = ("bbr", "cubic")

CLASS_IDS = {traffic: ClassId[traffic.name] for traffic in TrafficClass}


class Enforcement(StrEnum):
    """Way in which a grant is enforced."""

    PACE = "pace"  # pacing, and a bucket as guard
    DROP = "drop"  # paper A's literal bucket and nothing else: a baseline
    NONE = "none"  # the class is marked, the rate is free


_MODE = {Enforcement.PACE: BucketMode.DEBT, Enforcement.DROP: BucketMode.DROP, Enforcement.NONE: BucketMode.ACCOUNT}


@dataclass(frozen=True, slots=True)
class FlowState:
    """The kernel's state of a flow, as it is wanted and as it is read back. `None`: not paced; no bucket."""

    pacing_bytes_per_s: int | None
    bucket_bytes_per_s: int | None
    traffic_class: TrafficClass
    congestion: str


def wire_rate(payload_bytes_per_s: float) -> float:
    """Return the wire bytes/s that carry a payload rate in full segments."""
    return payload_bytes_per_s * WIRE_PER_PAYLOAD


def payload_rate(wire_bytes_per_s: float) -> float:
    """Return the payload bytes/s that a wire rate carries in full segments."""
    return wire_bytes_per_s / WIRE_PER_PAYLOAD


def paced_rate(grant_bytes_per_s: float) -> int:
    """Return the pacing rate of a grant, in whole payload bytes/s."""
    return max(1, int(grant_bytes_per_s * PACING_SHARE))


def smooth_pacing() -> bool:
    """Let paced senders of this network namespace send two segments at a time; False if the kernel cannot (before 5.18).

    Where the round trip is short, Linux builds super-packets of 64 KiB even for a slow flow (tcp_tso_rtt_log): at 4 Mbit/s one
    every 130 ms, which overfills queues and makes a rate exact only over seconds. Call it once, in the host's namespace, before
    its connections are made.
    """
    try:
        TSO_RTT_LOG.write_text("0\n")
    except OSError:  # it has none, or only its owner may change it
        return False
    return TSO_RTT_LOG.read_text().strip() == "0"


class FlowGuard:
    """The enforcement of one connected TCP socket, for the bytes that this side sends.

    `grant_bytes_per_s` is payload. `maps` are the host's (None: socket options only, for machines without BPF).
    `congestion` is the name of a congestion control, by default BBR where the kernel offers it, else CUBIC.

    Raises SetupError if the kernel lacks the congestion control asked for. ValueError: a grant that is not positive.
    KernelMismatch: what is read back is not what was asked.
    """

    def __init__(
        self,
        maps: HostMaps | None,
        sock: socket.socket,
        traffic_class: TrafficClass,
        grant_bytes_per_s: float,
        enforcement: Enforcement = Enforcement.PACE,
        congestion: str | None = None,
    ) -> None:
        self._maps, self._sock, self._enforcement = maps, sock, enforcement
        rates = self._rates(grant_bytes_per_s)
        self.key = flow_key(sock)
        self._wanted = FlowState(*rates, traffic_class, choose_congestion(sock, congestion))
        _mark(sock, traffic_class)
        if maps is not None:
            self._insert(maps)
        try:
            self._pace()
            self.readback()
        except BaseException:
            self.close()
            raise

    def regrant(self, grant_bytes_per_s: float) -> None:
        """Change the payload rate. The bucket opens before the pacing does, and closes after it."""
        before = self._wanted.bucket_bytes_per_s or 0
        pacing, bucket = self._rates(grant_bytes_per_s)
        self._wanted = replace(self._wanted, pacing_bytes_per_s=pacing, bucket_bytes_per_s=bucket)
        if (bucket or 0) >= before:
            self._set_bucket()
            self._pace()
        else:
            self._pace()
            self._set_bucket()
        self.readback()

    def park(self) -> None:
        """Lower the bucket to PARKED_BYTES_PER_S: the sender hands over nothing but signs of life now.

        The pacing stays. At a low one each packet keeps the next waiting for its length over that rate, whatever is
        granted meanwhile. BBR also takes the low rate for what the path carries. A flow that is paced to nothing is .3
        to .9 s behind its next grant (`reclaimnet measure rates`). Call it when the socket is empty; `regrant` opens it
        again.
        """
        if self._wanted.bucket_bytes_per_s is not None:
            rate = min(self._wanted.bucket_bytes_per_s, int(wire_rate(PARKED_BYTES_PER_S) * GUARD_SLACK))
            self._wanted = replace(self._wanted, bucket_bytes_per_s=rate)
            self._set_bucket()
        self.readback()

    def readback(self) -> FlowState:
        """Return the kernel's state of this flow; KernelMismatch if it differs from what was set."""
        state = self._maps.flows.lookup(self.key) if self._maps is not None else None
        if self._maps is not None and (
            state is None or state.traffic_class is not CLASS_IDS[self._wanted.traffic_class]
        ):
            raise KernelMismatch(f"entry of {self.key} in the flow table", self._wanted.traffic_class, state)
        raw = self._sock.getsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 8)
        pacing: int = struct.unpack("@Q", raw)[0]
        dscp = marked_dscp(self._sock)
        found = FlowState(
            None if pacing == UNPACED else pacing,
            None if state is None or state.mode is BucketMode.ACCOUNT else state.rate_bytes_per_s,
            next((c for c in TrafficClass if c.dscp == dscp), TrafficClass.RESEARCH),
            congestion_of(self._sock),
        )
        _must_match(f"flow {self.key}", self._wanted, found)
        return found

    def close(self) -> Traffic | None:
        """Take the flow out of the table (once; the socket stays open, paced as it was): its final counters."""
        maps, self._maps = self._maps, None
        state = maps.flows.delete(self.key) if maps is not None else None
        return None if state is None else state.traffic

    def _rates(self, grant_bytes_per_s: float) -> tuple[int | None, int | None]:
        """Return the rates of pacing and bucket that enforce a grant."""
        if not grant_bytes_per_s >= 1:
            raise ValueError(f"a grant of {grant_bytes_per_s} bytes/s: at least 1 is needed")
        paces, wire = self._enforcement is Enforcement.PACE, wire_rate(grant_bytes_per_s)
        bucket = int(wire * GUARD_SLACK) if paces else int(wire)
        has_bucket = self._maps is not None and self._enforcement is not Enforcement.NONE
        return paced_rate(grant_bytes_per_s) if paces else None, bucket if has_bucket else None

    def _insert(self, maps: HostMaps) -> None:
        rate = self._wanted.bucket_bytes_per_s or 0
        maps.flows.insert(
            self.key,
            traffic_class=CLASS_IDS[self._wanted.traffic_class],
            mode=_MODE[self._enforcement],
            rate_bytes_per_s=rate,
            burst_bytes=self._burst_bytes(rate),
        )

    def _set_bucket(self) -> None:
        rate = self._wanted.bucket_bytes_per_s
        if self._maps is not None and rate is not None:
            self._maps.flows.update_rate(self.key, rate, self._burst_bytes(rate))

    def _burst_bytes(self, rate_bytes_per_s: int) -> int:
        return DROP_BURST_BYTES if self._enforcement is Enforcement.DROP else _guard_burst(rate_bytes_per_s)

    def _pace(self) -> None:
        """Set the pacing rate in its 64-bit form: with 4 bytes the kernel would take at most 4 GiB/s."""
        rate = self._wanted.pacing_bytes_per_s
        value = struct.pack("@Q", UNPACED if rate is None else rate)
        self._sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, value)


def set_aggregate(maps: HostMaps, payload_bytes_per_s: float, *, migrations_only: bool | None = None) -> None:
    """Set the most that all migrations together may send from this host, as payload. KernelMismatch if it did not take.

    `migrations_only`: checkpoints, which ports serve apart, are not counted among them (None: as it was).
    """
    rate = int(wire_rate(payload_bytes_per_s))
    if migrations_only is not None:
        maps.aggregate.migrations_only = migrations_only
        found = maps.aggregate.migrations_only
        _must_match("whether the aggregate bucket is of migrations only", migrations_only, found)
    maps.aggregate.set_grant(rate, _guard_burst(rate))  # last: a bucket that has a grant has all of it
    _must_match("the aggregate bucket", rate, maps.aggregate.state().rate_bytes_per_s)


class HasNames(Protocol):
    """A connected socket, the standard library's or trio's."""

    def getsockname(self) -> Any: ...
    def getpeername(self) -> Any: ...


def flow_key(sock: HasNames) -> FlowKey:
    """Return the key by which packets of this connected TCP socket name their flow."""
    here, there = sock.getsockname(), sock.getpeername()
    source, destination = (IPv4Address(name[0]) for name in (here, there))
    return FlowKey(source, here[1], destination, there[1])


def choose_congestion(sock: socket.socket, name: str | None = None) -> str:
    """Set the congestion control `name`, or the first of PREFERRED_CONGESTION that there is; return its name."""
    for candidate in (name,) if name else PREFERRED_CONGESTION:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, candidate.encode())
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EPERM):
                raise
        else:
            return candidate
    wanted = name or " or ".join(PREFERRED_CONGESTION)
    raise SetupError(f"this kernel offers no congestion control {wanted}; mend it with: modprobe tcp_{name or 'cubic'}")


def congestion_of(sock: socket.socket) -> str:
    """Return the congestion control of a TCP socket."""
    return sock.getsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, 16).rstrip(b"\0").decode()


def marked_dscp(sock: socket.socket) -> int:
    """Return the code point that the socket asks for."""
    return sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2


def _mark(sock: socket.socket, traffic_class: TrafficClass) -> None:
    """Have the socket mark its packets itself, so that the egress program seldom has to rewrite one (30 ns)."""
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, traffic_class.dscp << 2)


def _guard_burst(rate_bytes_per_s: int) -> int:
    return max(GUARD_BURST_BYTES, int(rate_bytes_per_s * GUARD_BURST_S))


def _must_match(what: str, asked: object, found: object) -> None:
    if asked != found:
        raise KernelMismatch(what, asked, found)
