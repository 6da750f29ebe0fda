r"""Small network for measurements of rates: senders, a switch with a shaped trunk, and a sink.

        s0 --\\
        s1 ---- switch (bridge) ==== trunk, HTB ==== sink
        ..  --/

Every node is a process in a network namespace of its own (`nodes`). Senders run the egress program on their interface and a
`FlowGuard` on their socket, like an agent; the sink counts what arrives.
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from bpf.maps import HostMaps
from bpf.objects import HostPrograms, load_host_programs
from experiments.benchmarks.nodes import Node
from testbed.agent.io.paced_send import AHEAD_S, MIN_AHEAD_BYTES
from testbed.emulation.kernel.attachment import host_requests
from testbed.emulation.netlink import NetlinkSocket
from testbed.enforcement import TSO_RTT_LOG, Enforcement, FlowGuard, set_aggregate, smooth_pacing, wire_rate
from testbed.errors import CommandFailed, SetupError
from testbed.transfer import unacknowledged_bytes
from topologies.spec import TrafficClass

PORT: Final = 5000
SINK: Final = "10.255.0.200"
TOTAL_RETRANSMITS: Final = 100  # offset of tcpi_total_retrans in struct tcp_info
QUEUE_S: Final = 0.1  # behind each class, as the campus has it (testbed/emulation/description/shaping.py)
MIN_QUEUE_BYTES: Final = 256 << 10
MARKED_SHARE: Final = 0.7  # 1 - beta of paper A
BURST_S: Final = 1e-3
MIN_BURST_BYTES: Final = 16384
ARRIVE_S: Final = 10.0  # a sender that is not there by then has failed, and reports why
CHUNK: Final = bytes(256 << 10)
BEFORE_S: Final = 0.5  # of the grant before and after it is nothing
GIVEN_UP_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Order:
    """Order to one sender. `grant_bytes_per_s` is payload; None sends as fast as it can (research)."""

    grant_bytes_per_s: float | None
    enforcement: Enforcement
    congestion: str


@dataclass(frozen=True, slots=True)
class TrunkShaping:
    """Shaping of the trunk: queues and rates.

    Either one queue at a wire rate; or marked classes in a queue of their own, served first; or sender n in a class of
    its own that gets the n-th of `class_payload_bytes_per_s` and no more.
    """

    rate_bytes_per_s: float
    serves_marked_first: bool = False
    class_payload_bytes_per_s: tuple[float, ...] = ()


class RatesNetwork:
    """Standing network; one `measure` at a time."""

    def __init__(self, switch: Node, sink: Node, senders: Sequence[Node]) -> None:
        self._switch, self._sink, self._senders = switch, sink, senders

    def shape(self, trunk: TrunkShaping) -> None:
        """Shape the trunk, in place of any shaping before."""
        with suppress(CommandFailed):  # there is none the first time
            self._switch.run("tc", "qdisc", "del", "dev", "trunk", "root")
        rate = trunk.rate_bytes_per_s
        wires = [wire_rate(payload) for payload in trunk.class_payload_bytes_per_s]
        lines = [
            "qdisc add dev trunk root handle 1: htb default 99",
            f"class add dev trunk parent 1: classid 1:1 htb {_rate(rate, rate)}",
        ]
        for number, wire in enumerate(wires):
            lines += _class(10 + number, wire, wire)
            lines.append(_filter(f"ip src {address(number)}/32", 10 + number))
        if trunk.serves_marked_first:
            lines += _class(10, MARKED_SHARE * rate, rate)
            for traffic_class in (TrafficClass.EMERGENCY, TrafficClass.PLANNED, TrafficClass.PRESYNC):
                lines.append(_filter(f"ip dsfield {traffic_class.dscp << 2:#x} 0xfc", 10))
        rest = (1 - MARKED_SHARE) * rate if trunk.serves_marked_first else rate - sum(wires)
        lines += _class(99, rest, rate, priority=1)
        self._switch.run("tc", "-batch", "-", text="\n".join(lines))

    def rise(self, order: Order, nothing_s: float) -> float:
        """Run one flow that has its grant, is parked as agents do it, and has its grant again; return its delay in s."""
        self._sink.ask(flows=1, warm_s=0.0, measured_s=2 * BEFORE_S + nothing_s + GIVEN_UP_S)
        sender = self._senders[0]
        sender.ask(
            grant=order.grant_bytes_per_s,
            enforcement=order.enforcement,
            congestion=order.congestion,
            nothing_s=nothing_s,
        )
        behind_s = float(sender.answer()["behind_s"])
        self._sink.answer()
        return behind_s

    def measure(self, orders: Sequence[Order], warm_s: float, measured_s: float) -> list[dict[str, Any]]:
        """Run one flow an order, from sender n; return reports of goodput_bytes_per_s, retransmits, bucket_drops."""
        self._sink.ask(flows=len(orders), warm_s=warm_s, measured_s=measured_s)
        senders = self._senders[: len(orders)]
        for sender, order in zip(senders, orders, strict=True):
            sender.ask(
                grant=order.grant_bytes_per_s, enforcement=order.enforcement, congestion=order.congestion
            )
        try:
            goodput = self._sink.answer()
        except SetupError:
            for sender in senders:
                sender.answer()
            raise
        return [
            sender.answer() | {"goodput_bytes_per_s": goodput[address(n)]} for n, sender in enumerate(senders)
        ]


@contextmanager
def rates_network(senders: int) -> Iterator[RatesNetwork]:
    """Build the network, and remove it after. SetupError without root."""
    if os.geteuid() != 0:
        raise SetupError("measuring rates needs root: it makes network namespaces and loads BPF programs")
    with ExitStack() as stack:

        def node(serve: Callable[[dict[str, Any]], dict[str, Any]]) -> Node:
            made = Node(serve)
            stack.callback(made.close)
            return made

        switch, sink = node(lambda order: {}), node(Sink().serve)
        hosts = [node(Sender().serve) for _ in range(senders)]
        switch.run("ip", "link", "add", "name", "bridge0", "type", "bridge")
        switch.run("ip", "link", "set", "bridge0", "up")
        _plug(switch, sink, "trunk", SINK)
        for number, host in enumerate(hosts):
            _plug(switch, host, f"p{number}", address(number))
        yield RatesNetwork(switch, sink, hosts)


def address(number: int) -> str:
    """Return the address of sender `number`."""
    return f"10.255.0.{number + 1}"


def _plug(switch: Node, node: Node, port: str, ip: str) -> None:
    switch.run("ip", "link", "add", port, "type", "veth", "peer", "name", "e0", "netns", str(node.pid))
    switch.run("ip", "link", "set", port, "master", "bridge0", "up")
    node.run("ip", "-batch", "-", text=f"addr add {ip}/24 dev e0\nlink set e0 up\nlink set lo up\n")


def _filter(match: str, minor: int) -> str:
    return f"filter add dev trunk parent 1: protocol ip prio 1 u32 match {match} flowid 1:{minor}"


def _class(minor: int, rate_bytes_per_s: float, ceil_bytes_per_s: float, priority: int = 0) -> Iterator[str]:
    limit = max(MIN_QUEUE_BYTES, round(ceil_bytes_per_s * QUEUE_S))
    rates = _rate(rate_bytes_per_s, ceil_bytes_per_s)
    yield f"class add dev trunk parent 1:1 classid 1:{minor} htb {rates} prio {priority}"
    yield f"qdisc add dev trunk parent 1:{minor} bfifo limit {limit}"


def _rate(rate_bytes_per_s: float, ceil_bytes_per_s: float) -> str:
    burst = max(MIN_BURST_BYTES, round(ceil_bytes_per_s * BURST_S))
    rates = f"rate {round(rate_bytes_per_s * 8)}bit ceil {round(ceil_bytes_per_s * 8)}bit"
    return f"{rates} burst {burst} cburst {burst} quantum 65536"


class Sink:
    """Counter of arrivals by address; made in the parent, opened in its own namespace."""

    def __init__(self) -> None:
        self._server: socket.socket | None = None

    def serve(self, order: dict[str, Any]) -> dict[str, Any]:
        """Accept that many flows, let them warm up, and return payload bytes/s by address over the measured time."""
        self._server = self._server or socket.create_server((SINK, PORT), backlog=64)
        self._server.settimeout(ARRIVE_S)
        flows = [self._server.accept() for _ in range(order["flows"])]
        names = {connection: peer[0] for connection, peer in flows}
        received = dict.fromkeys(names, 0)
        with selectors.DefaultSelector() as selector:
            for connection in names:
                connection.setblocking(False)
                selector.register(connection, selectors.EVENT_READ)
            _drain(selector, received, time.monotonic() + order["warm_s"])
            before, began_s = dict(received), time.monotonic()
            _drain(selector, received, began_s + order["measured_s"])
            elapsed_s = time.monotonic() - began_s
        for connection in names:
            connection.close()
        return {name: (received[c] - before[c]) / elapsed_s for c, name in names.items()}


def _drain(selector: selectors.BaseSelector, received: dict[socket.socket, int], until_s: float) -> None:
    """Count arriving bytes; MSG_TRUNC discards them inside the kernel, so that the sink is not the bottleneck."""
    room = bytearray(1 << 20)
    while selector.get_map() and (left_s := until_s - time.monotonic()) > 0:
        for key, _ in selector.select(left_s):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            with suppress(BlockingIOError):
                arrived = connection.recv_into(room, len(room), socket.MSG_TRUNC)
                received[connection] += arrived
                if not arrived:  # its sender has hung up
                    selector.unregister(connection)


class Sender:
    """Sending host: its programs are loaded once, each order is one flow."""

    def __init__(self) -> None:
        self._programs: HostPrograms | None = None
        self._tso_rtt_log = TSO_RTT_LOG.read_text()  # as the kernel has it: foreign traffic runs with it

    def serve(self, order: dict[str, Any]) -> dict[str, Any]:
        """Send until the sink closes."""
        if self._programs is None:
            self._programs = load_host_programs()
            egress_fd, ingress_fd = self._programs.egress_fd, self._programs.ingress_fd
            with NetlinkSocket() as netlink:
                netlink.send(host_requests(socket.if_nametoindex("e0"), egress_fd, ingress_fd, "e0"))
        programs = self._programs
        enforcement, grant = Enforcement(order["enforcement"]), order["grant"]
        TSO_RTT_LOG.write_text(self._tso_rtt_log)
        traffic_class = TrafficClass.RESEARCH if grant is None else TrafficClass.PLANNED
        if enforcement is Enforcement.PACE:
            set_aggregate(programs, grant)
            smooth_pacing()
        else:
            programs.aggregate.unset()
        with socket.create_connection((SINK, PORT), ARRIVE_S) as sock:
            if "nothing_s" in order:
                return {"behind_s": _rise(programs, sock, order)}
            sock.settimeout(None)
            guard = FlowGuard(programs, sock, traffic_class, grant or 1.0, enforcement, order["congestion"])
            with suppress(ConnectionError):
                while True:
                    sock.sendall(CHUNK)
            counted = guard.close()
            information = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        return {
            "retransmits": struct.unpack_from("=I", information, TOTAL_RETRANSMITS)[0],
            "bucket_drops": counted.dropped_packets if counted else 0,
        }


def _rise(maps: HostMaps, sock: socket.socket, order: dict[str, Any]) -> float:
    """Send by a grant, not at all, by the grant again; return the delay in s after BEFORE_S of the second grant."""
    grant = order["grant"]
    guard = FlowGuard(maps, sock, TrafficClass.PLANNED, grant, congestion=order["congestion"])
    sock.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, max(MIN_AHEAD_BYTES, round(grant * AHEAD_S))
    )
    sock.setblocking(False)

    def send(lasts_s: float, most: float) -> float:
        """Send as much as the socket takes for a time, until `most` bytes are acknowledged; return the seconds that took."""
        began_s, sent = time.monotonic(), -unacknowledged_bytes(sock)
        while (took_s := time.monotonic() - began_s) < lasts_s and sent - unacknowledged_bytes(sock) < most:
            select.select([], [sock], [], 0.002)
            with suppress(BlockingIOError):
                sent += sock.send(CHUNK)
        return took_s

    send(BEFORE_S, inf)
    time.sleep(order["nothing_s"])
    guard.park()
    guard.regrant(grant)
    behind_s = send(GIVEN_UP_S, grant * BEFORE_S) - BEFORE_S
    guard.close()
    return behind_s
