"""BPF_PROG_TEST_RUN for sched_cls programs: runs a loaded program in the kernel on a packet that was given to it, without a
network. The frame must have at least an Ethernet header (14 bytes), the kernel asks for it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from bpf.errors import BpfError
from bpf.library import check, libbpf

PASS, DROP = 0, 2  # TC_ACT_OK, TC_ACT_SHOT
ETHERNET_BYTES = 14
HEADROOM_BYTES = 256  # the packet may come back longer than it went in


class SkBuff(ctypes.Structure):
    """`struct __sk_buff`: the fields that a test may set are mark, priority, ifindex, cb, tstamp, wire_len, gso_segs and
    gso_size; the kernel refuses the others unless 0."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("len", "pkt_type", "mark", "queue_mapping", "protocol")),
        *((name, ctypes.c_uint32) for name in ("vlan_present", "vlan_tci", "vlan_proto", "priority")),
        *((name, ctypes.c_uint32) for name in ("ingress_ifindex", "ifindex", "tc_index")),
        ("cb", ctypes.c_uint32 * 5),
        *(
            (name, ctypes.c_uint32)
            for name in ("hash", "tc_classid", "data", "data_end", "napi_id", "family")
        ),
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


class _Options(ctypes.Structure):
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
class TestRun:
    """The program's answer (PASS, DROP), the packet as it left it, and the mean time of one run."""

    __test__ = False  # pytest: not a test case

    verdict: int
    packet: bytes


def run(fd: int, packet: bytes, *, ctx: SkBuff | None = None) -> TestRun:
    """Run the program once on `packet`.

    `wire_len` of `ctx` may be at most 65 536, the longest that the kernel believes of a test. BpfError if the kernel
    refuses the packet or the context.
    """
    if len(packet) < ETHERNET_BYTES:
        raise BpfError(
            f"a test packet of {len(packet)} bytes: at least an Ethernet header of {ETHERNET_BYTES} is needed"
        )
    out = ctypes.create_string_buffer(len(packet) + HEADROOM_BYTES)
    options = _Options(
        sz=ctypes.sizeof(_Options),
        data_in=packet,
        data_out=ctypes.addressof(out),
        data_size_in=len(packet),
        data_size_out=len(out),
        repeat=1,
    )
    if ctx is not None:
        options.ctx_in, options.ctx_size_in = ctypes.addressof(ctx), ctypes.sizeof(ctx)
    check(libbpf().bpf_prog_test_run_opts(fd, ctypes.byref(options)), "run a program on a test packet")
    return TestRun(options.retval, out.raw[: options.data_size_out])
