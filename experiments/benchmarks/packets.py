"""What the programs cost a packet: nanoseconds in the kernel, by BPF_PROG_TEST_RUN with repetition, without a network.

The test harness itself costs some 25 ns a run (a program of two instructions says how much); the figures of `packet_ns` are
with it taken off, `measured_ns` with it. The least of several rounds is kept: others disturb, nothing speeds up. Cache misses
that a busy host would add are not in it. "rewritten" is a build that writes the code point of every packet, as happens
where a sender did not mark its own packets.
"""

from __future__ import annotations

import os
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

from bpf.build import compile_program
from bpf.layout import FIRST_PORT, BucketMode, ClassId, Mode
from bpf.maps import FlowKey
from bpf.objects import HostPrograms, load_host_programs
from bpf.ports import Limit, PortRule, load_port_program
from bpf.testrun import SkBuff, load_nothing, run
from experiments.benchmarks.results import write_result
from experiments.results.pictures import BAD, GOOD, OURS, PEER, canvas
from testbed.emulation.description import link_requests
from testbed.emulation.description.plan import Bridge
from testbed.emulation.kernel.build import in_thread
from testbed.emulation.kernel.linux import unshare_network
from testbed.emulation.netlink import NetlinkSocket
from topologies.units import SEGMENT_BYTES

REPEAT: Final = 500_000
ROUNDS: Final = 7
TARGETS_NS: Final = {"egress": 150, "ingress": 50, "port": 100}
HERE: Final = IPv4Address("10.0.0.1")
KEY: Final = FlowKey(HERE, 40000, IPv4Address("10.0.0.2"), 7000)
MAC: Final = bytes.fromhex("020000000001")
AMPLE: Final = (1 << 40, 1 << 30)  # bytes/s, bytes: never empty at any speed of this loop
COLOURS: Final = {"egress": OURS, "ingress": PEER, "port": GOOD}
DSCP: Final = {ClassId.PLANNED: 34, ClassId.RESEARCH: 0}


def measure_packets(out: Path, *, rounds: int = ROUNDS, repeat: int = REPEAT) -> dict[str, Any]:
    """Measures every case; writes packets.json and packets.svg to `out` and returns what the JSON holds.

    Needs root and clang (one case is compiled for it); BpfError says so. Takes about 5 s.
    """
    nothing_fd = load_nothing()
    try:
        harness_ns = _least_ns(nothing_fd, packet(0), rounds, repeat)
    finally:
        os.close(nothing_fd)
    modes = {"account": BucketMode.ACCOUNT, "guard": BucketMode.DEBT, "literal": BucketMode.DROP}
    cases: dict[str, Case] = {
        "egress unmatched": _egress(None, False),
        "egress unmatched, rewritten": _egress(None, True),
    }
    for name, mode in modes.items():
        cases[f"egress {name}"] = _egress(mode, False)
        cases[f"egress {name}, rewritten"] = _egress(mode, True)
    cases |= {f"ingress {mode.name.lower()}": _ingress(mode) for mode in Mode}
    cases |= {
        "port research": _port(DSCP[ClassId.RESEARCH], HERE),
        "port migration": _port(DSCP[ClassId.PLANNED], HERE),
        "port forged": _port(DSCP[ClassId.RESEARCH], IPv4Address("10.9.9.9")),
    }
    measured = {name: case(rounds, repeat) for name, case in cases.items()}
    result: dict[str, Any] = {
        "kernel": os.uname().release,
        "repeat": repeat,
        "rounds": rounds,
        "harness_ns": harness_ns,
        "measured_ns": measured,
        "packet_ns": {name: ns - harness_ns for name, ns in measured.items()},
        "targets_ns": TARGETS_NS,
        "met": all(ns - harness_ns < TARGETS_NS[name.split()[0]] for name, ns in measured.items()),
    }
    write_result(out / "packets.json", result)
    names = list(result["packet_ns"])
    places = range(len(names))
    with canvas(out / "packets.svg", 1, 1, (8, 4.5)) as (_, [[axes]]):
        colours = [COLOURS[name.split()[0]] for name in names]
        bars = axes.barh(places, list(result["packet_ns"].values()), color=colours)
        axes.bar_label(
            bars, labels=[f"{ns} ns" for ns in result["packet_ns"].values()], padding=4, fontsize=9
        )
        for program, limit in TARGETS_NS.items():
            rows = [n for n, name in enumerate(names) if name.startswith(program)]
            axes.vlines(limit, rows[0] - 0.5, rows[-1] + 0.5, color=BAD, linestyle="--", linewidth=1)
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.15 * max(*result["packet_ns"].values(), *TARGETS_NS.values()))
        axes.set_xlabel(f"ns a packet, the harness's {result['harness_ns']} ns taken off (dashed: target)")
    return result


Case = Callable[[int, int], int]


def _egress(mode: BucketMode | None, is_rewritten: bool) -> Case:
    """A migration's packet (flow and aggregate are charged), or, without a mode, one of no flow."""
    traffic_class = ClassId.RESEARCH if mode is None else ClassId.PLANNED

    def measure(rounds: int, repeat: int) -> int:
        with _loaded(is_rewritten) as host:
            if mode is not None:
                rate, burst = AMPLE
                grant = {"rate_bytes_per_s": rate, "burst_bytes": burst}
                host.flows.insert(KEY, traffic_class=traffic_class, mode=mode, **grant)
            if mode in (BucketMode.DEBT, BucketMode.DROP):
                host.aggregate.set_grant(*AMPLE)
            return _least_ns(host.egress_fd, packet(DSCP[traffic_class]), rounds, repeat)

    return measure


def _ingress(mode: Mode) -> Case:
    """A segment of an established connection: a draining host asks its socket table about it."""

    def measure(rounds: int, repeat: int) -> int:
        with _loaded(False) as host, _connection() as key:
            host.switch.allow_coordinator(IPv4Address("10.9.9.9"))
            host.switch.set(mode)
            return _least_ns(host.ingress_fd, packet(0, key=key), rounds, repeat)

    return measure


def _port(dscp: int, address: IPv4Address) -> Case:
    """A packet at the port of the host of `address`, in a namespace that has the port's interface."""

    def measure(rounds: int, repeat: int) -> int:
        limit = Limit(*AMPLE)
        program = load_port_program(1)
        try:
            program.table.set(0, PortRule(MAC, address, limit, limit))
            return in_thread(lambda: _least_at_port_ns(program.fd, packet(dscp), rounds, repeat))
        finally:
            program.close()

    return measure


def _least_at_port_ns(fd: int, frame: bytes, rounds: int, repeat: int) -> int:
    unshare_network()
    with NetlinkSocket() as netlink:
        netlink.send([link_requests.bridge(Bridge("port0", FIRST_PORT, MAC))])
    return min(
        run(fd, frame, repeat=repeat, ctx=SkBuff(ifindex=FIRST_PORT)).duration_ns for _ in range(rounds)
    )


@contextmanager
def _connection() -> Iterator[FlowKey]:
    """A TCP connection over loopback; the flow from its client to its server."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        accepted, _ = server.accept()
        with accepted:
            (here, source), (there, destination) = client.getsockname(), client.getpeername()
            yield FlowKey(IPv4Address(here), source, IPv4Address(there), destination)


@contextmanager
def _loaded(is_rewritten: bool) -> Iterator[HostPrograms]:
    with tempfile.TemporaryDirectory() as place:
        variant = compile_program("egress", Path(place) / "always.o", "MARK_ALWAYS") if is_rewritten else None
        host = load_host_programs(egress=variant)
    try:
        yield host
    finally:
        host.close()


def _least_ns(fd: int, frame: bytes, rounds: int, repeat: int) -> int:
    return min(run(fd, frame, repeat=repeat).duration_ns for _ in range(rounds))


def packet(dscp: int, payload_bytes: int = SEGMENT_BYTES, key: FlowKey = KEY) -> bytes:
    """A full TCP segment of a flow in Ethernet and IPv4."""
    ethernet = bytes(6) + MAC + b"\x08\x00"
    tcp = struct.pack("!HHIIBBHHH", key.source_port, key.destination_port, 1, 1, 5 << 4, 0x10, 502, 0, 0)
    length = 20 + len(tcp) + payload_bytes
    fields = [
        0x45,
        dscp << 2,
        length,
        0,
        0,
        64,
        socket.IPPROTO_TCP,
        0,
        key.source.packed,
        key.destination.packed,
    ]
    header = struct.pack("!BBHHHBBH4s4s", *fields)
    checksum = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while checksum >> 16:
        checksum = (checksum & 0xFFFF) + (checksum >> 16)
    fields[7] = ~checksum & 0xFFFF
    return ethernet + struct.pack("!BBHHHBBH4s4s", *fields) + tcp + bytes(payload_bytes)
