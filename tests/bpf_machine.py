"""What tests of BPF programs share: when they can run, a loaded host, packets, a program's verdict on one, a namespace."""

import ctypes
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from bpf.errors import BpfError
from bpf.library import check, libbpf
from bpf.maps import FlowKey
from bpf.objects import HostPrograms, load_host_programs

CLONE_NEWNET = 0x40000000
PASS, DROP = 0, 2  # TC_ACT_OK, TC_ACT_SHOT
HEADROOM_BYTES = 256  # the packet may come back longer than it went in
HERE, THERE = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
SPORT, DPORT = 40000, 7000
KEY = FlowKey(HERE, SPORT, THERE, DPORT)
ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


def loaded_or_skip() -> HostPrograms:
    """A fresh pair of programs; skips, with the reason, where a process may not load any."""
    if os.geteuid() != 0:
        pytest.skip("loading BPF programs needs root (CAP_BPF and CAP_NET_ADMIN)")
    try:
        return load_host_programs()
    except BpfError as error:
        if error.errno in (errno.EPERM, errno.ENOSYS, errno.ENOENT) or "apt install" in error.what:
            pytest.skip(str(error))
        raise


def in_own_namespace(body: Callable[[], None]) -> None:
    """Runs `body` in a child with a network namespace of its own, which ends with it; fails with what it raised."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "unshare")
            body()
            status = 0
        except BaseException as error:  # noqa: BLE001 - the child reports anything, then ends
            word = "skip: " if isinstance(error, pytest.skip.Exception) else ""
            os.write(writer, f"{word}{error!r}".encode()[:4000])
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as said:
        message = said.read()
    if message.startswith("skip: "):
        os.waitpid(child, 0)
        pytest.skip(message)
    assert os.waitpid(child, 0)[1] == 0, message


def tcp4(flags: str = "A", *, payload: int = 100, tos: int = 0, **ip: object) -> Packet:
    """A TCP segment from HERE to THERE."""
    return ETHER / IP(src=str(HERE), dst=str(THERE), tos=tos, **ip) / segment(flags, payload)


def udp4(payload: int = 100, **ip: object) -> Packet:
    """A datagram from HERE to THERE."""
    return ETHER / IP(src=str(HERE), dst=str(THERE), **ip) / UDP(sport=SPORT, dport=DPORT) / Raw(bytes(payload))


def ip6(*, traffic_class: int = 0) -> Packet:
    """The beginning of an IPv6 packet."""
    return ETHER / IPv6(src="fd00::1", dst="fd00::2", tc=traffic_class)


def segment(flags: str = "A", payload: int = 100) -> Packet:
    """A TCP segment without what carries it."""
    return TCP(sport=SPORT, dport=DPORT, flags=flags) / Raw(bytes(payload))


class SkBuff(ctypes.Structure):
    """`struct __sk_buff`: the fields that a test may set are mark, priority, ifindex, cb, tstamp, wire_len, gso_segs and
    gso_size; the kernel refuses the others unless 0."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("len", "pkt_type", "mark", "queue_mapping", "protocol")),
        *((name, ctypes.c_uint32) for name in ("vlan_present", "vlan_tci", "vlan_proto", "priority")),
        *((name, ctypes.c_uint32) for name in ("ingress_ifindex", "ifindex", "tc_index")),
        ("cb", ctypes.c_uint32 * 5),
        *((name, ctypes.c_uint32) for name in ("hash", "tc_classid", "data", "data_end", "napi_id", "family")),
        *((name, ctypes.c_uint32) for name in ("remote_ip4", "local_ip4")),
        ("remote_ip6", ctypes.c_uint32 * 4),
        ("local_ip6", ctypes.c_uint32 * 4),
        *((name, ctypes.c_uint32) for name in ("remote_port", "local_port", "data_meta")),
        ("flow_keys", ctypes.c_uint64),
        ("tstamp", ctypes.c_uint64),
        ("wire_len", ctypes.c_uint32),
        ("gso_segs", ctypes.c_uint32),
        ("sk", ctypes.c_uint64),
        ("gso_size", ctypes.c_uint32),
        ("tstamp_type", ctypes.c_uint8),
        ("padding", ctypes.c_uint8 * 3),
        ("hwtstamp", ctypes.c_uint64),
    ]


class _RunOptions(ctypes.Structure):
    """`struct bpf_test_run_opts` of libbpf 1.x."""

    _fields_ = [
        ("sz", ctypes.c_size_t),
        ("data_in", ctypes.c_char_p),
        ("data_out", ctypes.c_void_p),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("ctx_in", ctypes.c_void_p),
        ("ctx_out", ctypes.c_void_p),
        ("ctx_size_in", ctypes.c_uint32),
        ("ctx_size_out", ctypes.c_uint32),
        ("retval", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    ]


@dataclass(frozen=True, slots=True)
class Ran:
    """A program's answer (PASS, DROP), and the packet as it left it."""

    verdict: int
    packet: bytes


def run(fd: int, packet: bytes, *, ctx: SkBuff | None = None) -> Ran:
    """Run a loaded sched_cls program once in the kernel, on a packet of 14 bytes or more (BPF_PROG_TEST_RUN).

    `wire_len` of `ctx` may be at most 65 536, the longest that the kernel believes of a test. BpfError if the kernel
    refuses the packet or the context.
    """
    out = ctypes.create_string_buffer(len(packet) + HEADROOM_BYTES)
    options = _RunOptions(
        sz=ctypes.sizeof(_RunOptions),
        data_in=packet,
        data_out=ctypes.addressof(out),
        data_size_in=len(packet),
        data_size_out=len(out),
        repeat=1,
    )
    if ctx is not None:
        options.ctx_in, options.ctx_size_in = ctypes.addressof(ctx), ctypes.sizeof(ctx)
    check(libbpf().bpf_prog_test_run_opts(fd, ctypes.byref(options)), "run a program on a test packet")
    return Ran(options.retval, out.raw[: options.data_size_out])
