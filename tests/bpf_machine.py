"""What the tests of the kernel's part share: when they can run, packets, and a loaded host."""

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from bpf.errors import BpfError
from bpf.maps import FlowKey
from bpf.objects import HostPrograms, load_host_programs

CLONE_NEWNET = 0x40000000
HERE, THERE = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
HERE6, THERE6 = IPv6Address("fd00::1"), IPv6Address("fd00::2")
SPORT, DPORT = 40000, 7000
KEY = FlowKey(HERE, SPORT, THERE, DPORT)
KEY6 = FlowKey(HERE6, SPORT, THERE6, DPORT)
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


def programs_fixture() -> Iterator[HostPrograms]:
    """For `pytest.fixture`: loaded before, closed after."""
    programs = loaded_or_skip()
    try:
        yield programs
    finally:
        programs.close()


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
    return (
        ETHER / IP(src=str(HERE), dst=str(THERE), **ip) / UDP(sport=SPORT, dport=DPORT) / Raw(bytes(payload))
    )


def ip6(*, traffic_class: int = 0) -> Packet:
    """The beginning of an IPv6 packet from HERE6 to THERE6."""
    return ETHER / IPv6(src=str(HERE6), dst=str(THERE6), tc=traffic_class)


def segment(flags: str = "A", payload: int = 100) -> Packet:
    """A TCP segment without what carries it."""
    return TCP(sport=SPORT, dport=DPORT, flags=flags) / Raw(bytes(payload))
