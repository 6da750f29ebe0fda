"""clsact and the two direct-action filters of an interface, through rtnetlink.

The messages are made here with struct (a few microseconds each), so that a batcher can send those of many hosts; each
carries NLM_F_ACK and the sequence number asked for. A filter message names the program by file descriptor: the process
that sends it must be the one that loaded the program (or have inherited the descriptor). clsact is chosen over TCX
because a TCX link costs 8 to 16 ms each (synchronize_rcu), a filter less than one.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterator

from bpf.errors import BpfError
from bpf.library import check, libbpf
from bpf.objects import HostPrograms

NLMSG_ERROR, NLMSG_DONE = 2, 3
RTM_NEWQDISC, RTM_DELQDISC, RTM_NEWTFILTER, RTM_GETTFILTER = 36, 37, 44, 46
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP, NLM_F_EXCL, NLM_F_CREATE = 0x1, 0x4, 0x300, 0x200, 0x400
TCA_KIND, TCA_OPTIONS = 1, 2
TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_FLAGS, TCA_BPF_ID = 6, 7, 8, 11
TCA_BPF_FLAG_ACT_DIRECT = 1
NLA_TYPE_MASK = 0x3FFF
CLSACT_HANDLE, CLSACT_PARENT = 0xFFFF0000, 0xFFFFFFF1
INGRESS_PARENT, EGRESS_PARENT = 0xFFFFFFF2, 0xFFFFFFF3
PRIORITY, FILTER_HANDLE = 1, 1
ETH_P_ALL = socket.htons(0x0003)

_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_TCMSG = struct.Struct("=BxxxiIII")  # tcmsg: family, ifindex, handle, parent, info
_ATTRIBUTE = struct.Struct("=HH")


class _ProgramInfo(ctypes.Structure):
    """The beginning of `struct bpf_prog_info`, up to the name."""

    _fields_ = [
        ("type", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("tag", ctypes.c_uint8 * 8),
        ("lengths_and_pointers", ctypes.c_uint32 * 6),
        ("load_time", ctypes.c_uint64),
        ("created_by_uid", ctypes.c_uint32),
        ("nr_map_ids", ctypes.c_uint32),
        ("map_ids", ctypes.c_uint64),
        ("name", ctypes.c_char * 16),
    ]


def attach_requests(ifindex: int, egress_fd: int, ingress_fd: int, *, sequence: int) -> list[bytes]:
    """Three netlink messages (clsact, egress filter, ingress filter) with numbers `sequence`, +1, +2; each is acked.

    For an interface without clsact: the first message fails with EEXIST if there is one already.
    """
    return [
        _message(RTM_NEWQDISC, ifindex, CLSACT_HANDLE, CLSACT_PARENT, 0, _text(TCA_KIND, "clsact"), sequence),
        _filter(ifindex, EGRESS_PARENT, egress_fd, "reclaim_egress", sequence + 1),
        _filter(ifindex, INGRESS_PARENT, ingress_fd, "reclaim_ingress", sequence + 2),
    ]


def port_requests(ifindex: int, fd: int, *, sequence: int) -> list[bytes]:
    """Two netlink messages, as `attach_requests`: clsact and the port program, for an interface of a switch."""
    return [
        _message(RTM_NEWQDISC, ifindex, CLSACT_HANDLE, CLSACT_PARENT, 0, _text(TCA_KIND, "clsact"), sequence),
        _filter(ifindex, INGRESS_PARENT, fd, "reclaim_port", sequence + 1),
    ]


def attach(ifindex: int, programs: HostPrograms) -> None:
    """Attaches both programs to an interface of the current network namespace. BpfError, with errno, if refused."""
    requests = attach_requests(ifindex, programs.egress_fd, programs.ingress_fd, sequence=1)
    with _netlink() as channel:
        for request in requests:
            _transact(channel, request, f"attach to interface {ifindex}")


def detach(ifindex: int) -> None:
    """Takes clsact away, and both filters with it."""
    request = _message(
        RTM_DELQDISC, ifindex, CLSACT_HANDLE, CLSACT_PARENT, 0, b"", 1, flags=NLM_F_REQUEST | NLM_F_ACK
    )
    with _netlink() as channel:
        _transact(channel, request, f"detach from interface {ifindex}")


def attached(ifindex: int) -> tuple[str, ...]:
    """Kernel names of the programs that run on the interface, egress first: the read-back of `attach`."""
    with _netlink() as channel:
        return tuple(
            program_name(program_id)
            for parent in (EGRESS_PARENT, INGRESS_PARENT)
            for program_id in _program_ids(channel, ifindex, parent)
        )


def program_name(program_id: int) -> str:
    """The name under which the kernel holds a program."""
    fd = check(libbpf().bpf_prog_get_fd_by_id(program_id), f"open the program {program_id}")
    try:
        info, size = _ProgramInfo(), ctypes.c_uint32(ctypes.sizeof(_ProgramInfo))
        check(
            libbpf().bpf_obj_get_info_by_fd(fd, ctypes.byref(info), ctypes.byref(size)),
            "read a program's name",
        )
        return str(info.name.decode())
    finally:
        os.close(fd)


def _netlink() -> socket.socket:
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    channel.bind((0, 0))
    return channel


def _transact(channel: socket.socket, request: bytes, what: str) -> None:
    channel.send(request)
    for kind, body in _messages(channel.recv(1 << 16)):
        if kind == NLMSG_ERROR:
            check(int.from_bytes(body[:4], "little", signed=True), what)


def _program_ids(channel: socket.socket, ifindex: int, parent: int) -> list[int]:
    flags = NLM_F_REQUEST | NLM_F_DUMP
    channel.send(_message(RTM_GETTFILTER, ifindex, 0, parent, 0, b"", 1, flags=flags))
    found: list[int] = []
    while True:
        for kind, body in _messages(channel.recv(1 << 16)):
            if kind == NLMSG_ERROR:
                check(
                    int.from_bytes(body[:4], "little", signed=True),
                    f"list the filters of interface {ifindex}",
                )
            if kind in (NLMSG_DONE, NLMSG_ERROR):
                return found
            options = dict(_attributes(dict(_attributes(body[_TCMSG.size :])).get(TCA_OPTIONS, b"")))
            if TCA_BPF_ID in options:
                found.append(int.from_bytes(options[TCA_BPF_ID], "little"))


def _filter(ifindex: int, parent: int, fd: int, name: str, sequence: int) -> bytes:
    options = (
        _number(TCA_BPF_FD, fd) + _text(TCA_BPF_NAME, name) + _number(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT)
    )
    attributes = _text(TCA_KIND, "bpf") + _attribute(TCA_OPTIONS, options)
    info = PRIORITY << 16 | ETH_P_ALL
    return _message(RTM_NEWTFILTER, ifindex, FILTER_HANDLE, parent, info, attributes, sequence)


def _message(
    kind: int,
    ifindex: int,
    handle: int,
    parent: int,
    info: int,
    attributes: bytes,
    sequence: int,
    *,
    flags: int = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
) -> bytes:
    body = _TCMSG.pack(socket.AF_UNSPEC, ifindex, handle, parent, info) + attributes
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, sequence, 0) + body


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=I", value))


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def _messages(raw: bytes) -> Iterator[tuple[int, bytes]]:
    while len(raw) >= _HEADER.size:
        length, kind, *_ = _HEADER.unpack_from(raw)
        if not _HEADER.size <= length <= len(raw):
            raise BpfError(f"netlink answered with a message of {length} bytes in {len(raw)}")
        yield kind, raw[_HEADER.size : length]
        raw = raw[length + -length % 4 :]


def _attributes(raw: bytes) -> Iterator[tuple[int, bytes]]:
    while len(raw) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(raw)
        if not _ATTRIBUTE.size <= length <= len(raw):
            return
        yield kind & NLA_TYPE_MASK, raw[_ATTRIBUTE.size : length]
        raw = raw[length + -length % 4 :]
