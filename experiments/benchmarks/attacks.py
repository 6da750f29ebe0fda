"""Senders that ignore their grants: processes inside a host that send until they are killed.

Two sorts. A user of a host has sockets: the host's shaper and egress program see their packets. A root user has frames
(AF_PACKET, PACKET_QDISC_BYPASS), which pass neither; only the switch's side of the cable is left to hold them. All are paced at a
multiple of the host's own link, so that a trial costs a bounded part of the machine.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bpf.maps import HostMaps
from testbed.enforcement import (
    SO_MAX_PACING_RATE,
    UNPACED,
    Enforcement,
    FlowGuard,
    choose_congestion,
    set_aggregate,
    smooth_pacing,
)
from topologies.spec import TrafficClass
from topologies.units import FRAME_BYTES

PORT = 7400  # of every receiver
CHUNK = bytes(256 << 10)
SOCKETS = 32
ARRIVE_S = 5.0
PACE_S = 0.002  # frames leave in bursts of so long
BEHIND_S = 0.1  # a sender that did not run makes up for so much at most
SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20
ETH_IPV4, ETH_TAG = 0x0800, 0x8100
IPV4_BYTES, UDP_BYTES, ETHERNET_BYTES = 20, 8, 14
DATAGRAM_BYTES = FRAME_BYTES - ETHERNET_BYTES - IPV4_BYTES - UDP_BYTES
AF41, BEST_EFFORT = TrafficClass.PLANNED.dscp, TrafficClass.RESEARCH.dscp


@dataclass(frozen=True, slots=True)
class SendingHost:
    """Sending host, its target, and its grant (payload bytes/s). `one_trunk.sending_host` makes it."""

    interface: str
    mac: bytes
    address: str
    target: str
    target_mac: bytes
    # of its link, on the wire
    rate_bytes_per_s: float
    grant_bytes_per_s: float
    share_bytes_per_s: float  # the most that all its migrations may have, payload
    pins: Path
    enforcement: Enforcement
    congestion: str | None
    neighbour: str  # another host's address, to forge


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames of full size, past the host's shaper and egress program."""

    dscp: int = BEST_EFFORT
    is_tagged: bool = False
    forges_address: bool = False
    links: float = 1.0  # times the link's rate

    def made_at(self, station: SendingHost) -> bytes:
        """Return one frame with its checksum."""
        source = station.neighbour if self.forges_address else station.address
        tag = struct.pack(">HH", ETH_TAG, 7) if self.is_tagged else b""
        link = station.target_mac + station.mac + tag + struct.pack(">H", ETH_IPV4)
        return link + datagram(source, station.target, self.dscp, FRAME_BYTES - len(link))

    def send(self, station: SendingHost) -> None:
        """Send frames until the process is killed."""
        frame = self.made_at(station)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
            sock.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
            sock.bind((station.interface, 0))
            paced(self.links * station.rate_bytes_per_s, len(frame), lambda: sock.send(frame))


def datagram(source: str, target: str, dscp: int, size_bytes: int) -> bytes:
    """Return an IPv4 packet of `size_bytes` with a datagram of zeros, which has no checksum."""
    addresses = socket.inet_aton(source) + socket.inet_aton(target)
    head = struct.pack(">BBHHHBBH", 0x45, dscp << 2, size_bytes, 0, 0x4000, 64, socket.IPPROTO_UDP, 0) + addresses
    total = sum(struct.unpack(">10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    header = struct.pack(">HHHH", PORT + 1, PORT + 1, size_bytes - IPV4_BYTES, 0)
    return (head[:10] + struct.pack(">H", checksum) + head[12:] + header).ljust(size_bytes, b"\0")


def paced(rate_bytes_per_s: float, size_bytes: int, send: Callable[[], object]) -> None:
    """Call `send` for ever so that `size_bytes` each make the rate; frames refused by a full queue are not sent again."""
    begun_s, sent = time.monotonic(), 0
    while True:
        now_s = time.monotonic()
        due = int((now_s - begun_s) * rate_bytes_per_s / size_bytes)
        if due - sent > BEHIND_S * rate_bytes_per_s / size_bytes:
            begun_s, sent, due = now_s, 0, 1
        while sent < due:
            with suppress(OSError):
                send()
            sent += 1
        time.sleep(PACE_S)


def greedy_tcp(target: str, *, sockets: int = 1, dscp: int = BEST_EFFORT, congestion: str = "cubic") -> None:
    """Send over so many connections at once, as fast as they go."""
    opened = [connected(target) for _ in range(sockets)]
    for sock in opened:
        choose_congestion(sock, congestion)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
        sock.setblocking(sockets == 1)
    with suppress(ConnectionError):
        while True:
            for sock in opened:
                with suppress(BlockingIOError):
                    sock.send(CHUNK)
            if sockets > 1:
                time.sleep(PACE_S)


def granted_socket(station: SendingHost) -> tuple[socket.socket, FlowGuard]:
    """Return a connection that has a grant, as an agent's has."""
    maps = HostMaps.open_pinned(station.pins)
    if station.enforcement is Enforcement.PACE:
        set_aggregate(maps, station.share_bytes_per_s)
        smooth_pacing()
    sock, grant = connected(station.target), station.grant_bytes_per_s
    guard = FlowGuard(maps, sock, TrafficClass.PLANNED, grant, station.enforcement, station.congestion)
    return sock, guard


def granted_tcp(station: SendingHost, *, keeps_pace: bool = True) -> None:
    """Send by a grant; or, with `keeps_pace` false, with its pacing off."""
    sock, _ = granted_socket(station)
    if not keeps_pace:
        sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("@Q", UNPACED))
    with suppress(ConnectionError):
        while True:
            sock.sendall(CHUNK)


def udp(station: SendingHost, *, dscp: int) -> None:
    """Send datagrams from a socket at the link's rate, which ask for a class."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
        sock.connect((station.target, PORT + 1))
        data = bytes(DATAGRAM_BYTES)
        paced(station.rate_bytes_per_s, FRAME_BYTES, lambda: sock.send(data))


def connected(target: str) -> socket.socket:
    """Return a connection to a receiver, which may listen a moment later; OSError if it does not."""
    limit_s = time.monotonic() + ARRIVE_S
    while True:
        try:
            sock = socket.create_connection((target, PORT), ARRIVE_S)
        except ConnectionRefusedError:
            if time.monotonic() > limit_s:
                raise
            time.sleep(0.01)
        else:
            sock.settimeout(None)
            return sock


@dataclass(frozen=True, slots=True)
class Attack:
    """Way to ignore a grant."""

    words: str
    # None: all keep their grants
    send: Callable[[SendingHost], None] | None
    links: float = 0.0  # its rate, in multiples of the link's; 0: of TCP
    in_quick: bool = False


def _frames(words: str, frames: Frames, *, in_quick: bool = False) -> Attack:
    return Attack(words, frames.send, frames.links, in_quick=in_quick)


ATTACKS: dict[str, Attack] = {
    "none": Attack("all keep their grants", None, in_quick=True),
    "unpaced": Attack("a granted flow takes its pacing off", lambda s: granted_tcp(s, keeps_pace=False), in_quick=True),
    "sockets": Attack(
        f"{SOCKETS} connections that ask for AF41",
        lambda s: greedy_tcp(s.target, sockets=SOCKETS, dscp=AF41),
        in_quick=True,
    ),
    "udp": Attack("UDP at the link's rate that asks for AF41", lambda s: udp(s, dscp=AF41), 0.8),
    "frames-af41": _frames("frames past the host's programs, AF41", Frames(AF41), in_quick=True),
    "frames-unmarked": _frames("the same, unmarked", Frames(), in_quick=True),
    "frames-fast": _frames("the same, AF41 at 4 times the link's rate", Frames(AF41, links=4.0)),
    "forged-address": _frames(
        "the same, AF41 from a neighbour's address", Frames(AF41, forges_address=True), in_quick=True
    ),
    "tagged": _frames("the same, AF41 behind a VLAN tag", Frames(AF41, is_tagged=True)),
}


def at_rate(frames: Frames, rate_bytes_per_s: float) -> Callable[[SendingHost], None]:
    """Return a sender of these frames at a rate of its own."""
    return lambda station: replace(frames, links=rate_bytes_per_s / station.rate_bytes_per_s).send(station)
