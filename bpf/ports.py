"""The switch's side of the hosts' cables: one program for all ports, and one record a port of what its host may send."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from dataclasses import dataclass
from ipaddress import IPv4Address

from bpf.layout import CREDIT_PER_BYTE, BucketMode, BucketStruct, MeterStruct, PortStruct, fill_ns
from bpf.memory import WritableMap
from bpf.meters import Traffic, check_grant, store_grant, traffic_of
from bpf.objects import loaded, map_fd, program_fd


@dataclass(frozen=True, slots=True)
class Limit:
    """A bucket: wire bytes/s and depth."""

    rate_bytes_per_s: int
    burst_bytes: int


@dataclass(frozen=True, slots=True)
class PortRule:
    """Limits of what a host sends.

    They are its addresses, its rate in all (`link`) and in the testbed's own classes (`own`, None: counted only).
    `checkpoints_apart`: `own` is of the other classes.
    """

    mac: bytes
    ipv4: IPv4Address
    link: Limit
    own: Limit | None
    checkpoints_apart: bool = False


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Traffic of a port: all that was not forged, the part of it in the testbed's own classes and ARP, and the forged."""

    link: Traffic
    own: Traffic
    forged: Traffic


class PortTable(WritableMap):
    """The records of all ports, by number from 0."""

    def __init__(self, fd: int, ports: int) -> None:
        self.size_bytes = -(-ctypes.sizeof(PortStruct) * ports // mmap.PAGESIZE) * mmap.PAGESIZE
        super().__init__(fd)
        self.lay_over(PortStruct, ports)

    def set(self, port: int, rule: PortRule) -> None:
        """Write a port's record before its program is attached: counters 0, buckets full. ValueError for a rate out of range."""
        self.records[port] = PortStruct(
            mac=(ctypes.c_uint8 * 6)(*rule.mac),
            checkpoints_apart=rule.checkpoints_apart,
            ipv4=(ctypes.c_uint8 * 4)(*rule.ipv4.packed),
            own=_meter(rule.own),
            link=_meter(rule.link),
        )

    def set_limits(self, port: int, link: Limit, own: Limit | None) -> None:
        """Change the limits of a port that is in use; counters and credit stay. ValueError for a rate out of range."""
        record = self.records[port]
        for limit, meter in ((link, record.link), (own, record.own)):
            if limit is not None:
                check_grant(limit.rate_bytes_per_s, limit.burst_bytes)
                store_grant(meter.bucket, limit.rate_bytes_per_s, limit.burst_bytes)

    def limits(self, port: int) -> tuple[Limit, Limit | None]:
        """Return the limits of a port as the program sees them: in all, and in the testbed's own classes (None: counted only)."""
        record = self.records[port]
        link, own = (Limit(m.bucket.rate_bytes_per_s, m.bucket.burst_bytes) for m in (record.link, record.own))
        return link, None if record.own.mode == BucketMode.ACCOUNT else own

    def counters(self, port: int) -> PortCounters:
        """Return the traffic that a port has let through and dropped since it was set."""
        record = self.records[port]
        return PortCounters(*map(traffic_of, (record.link.traffic, record.own.traffic, record.forged)))


@dataclass(frozen=True, slots=True)
class PortProgram:
    """The loaded program and its table. `close` lets go of this process's references only."""

    fd: int
    table: PortTable

    def close(self) -> None:
        """Close both; an attached program stays in the kernel. Once only."""
        os.close(self.fd)
        self.table.close()


def load_port_program(ports: int) -> PortProgram:
    """Load a program for `ports` ports, whose interfaces are numbered from FIRST_PORT. BpfError as `load_host_programs`."""
    with loaded("port", entries={"reclaim_ports": ports}) as pointer:
        return PortProgram(program_fd(pointer, "reclaim_port"), PortTable(map_fd(pointer, "reclaim_ports"), ports))


def _meter(limit: Limit | None) -> MeterStruct:
    if limit is None:
        return MeterStruct(mode=BucketMode.ACCOUNT)
    check_grant(limit.rate_bytes_per_s, limit.burst_bytes)
    bucket = BucketStruct(
        credit=limit.burst_bytes * CREDIT_PER_BYTE,
        last_ns=time.monotonic_ns(),
        rate_bytes_per_s=limit.rate_bytes_per_s,
        burst_bytes=limit.burst_bytes,
        fill_ns=fill_ns(limit.rate_bytes_per_s, limit.burst_bytes),
    )
    return MeterStruct(mode=BucketMode.DEBT, bucket=bucket)
