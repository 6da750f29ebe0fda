"""Small campuses, what is changed of one and put back, sockets in its hosts, and snapshots of the machine."""

import ipaddress
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from mininet.log import setLogLevel

from testbed import linux
from testbed.emulation.campus import LiveCampus
from testbed.emulation.kernel.build import in_thread
from tests.live_campus import needs_root
from topologies.spec import Building, Campus, GpuModel, Host, Link, Role, Switch, Tier
from topologies.units import GBIT_PER_S

kernel = [pytest.mark.kernel, needs_root]
SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20
setLogLevel("error")


def small_campus(
    hosts: int = 3, *, switches: int = 2, rate_bytes_per_s: float = GBIT_PER_S, delay_s: float = 0.0
) -> Campus:
    """h1..hN on access switches s1.., a coordinator c0 and 40 Gbit/s trunks on the core."""
    volunteers = [
        Host(f"h{i}", "b1", Role.VOLUNTEER, ipaddress.IPv4Address("10.0.1.0") + i, "gpu", 1)
        for i in range(1, hosts + 1)
    ]
    coordinator = Host("c0", "b1", Role.COORDINATOR, ipaddress.IPv4Address("10.0.0.1"))
    access = [Switch(f"s{i}", Tier.ACCESS, "b1") for i in range(1, switches + 1)]
    links = [Link("core", s.name, 40 * GBIT_PER_S) for s in access] + [Link("c0", "core", 10 * GBIT_PER_S)]
    links += [Link(h.name, access[i % switches].name, rate_bytes_per_s, delay_s) for i, h in enumerate(volunteers)]
    return Campus(
        "small",
        (Building("b1"),),
        (coordinator, *volunteers),
        (Switch("core", Tier.CORE), *access),
        tuple(links),
        (GpuModel("gpu", 8e9, 8.6),),
    )


@contextmanager
def put_back(net: LiveCampus) -> Iterator[LiveCampus]:
    """After the block every cable is as the campus's description has it."""
    try:
        yield net
    finally:
        for link in net.spec.links:
            as_described = {"rate": link.rate_bytes_per_s, "delay": link.delay_s}
            net.set_link(link.a, link.b, jitter=0.0, loss=0.0, up=True, **as_described)


def read_back(net: LiveCampus) -> None:
    """Compare all that the campus has in the kernel with its plan."""
    in_thread(net.kernel.read_back_fabric)
    in_thread(net.kernel.read_back_hosts)


def socket_in(net: LiveCampus, host: str, *kind: int) -> socket.socket:
    """A socket of a host's namespace, which it stays in whatever thread uses it."""

    def made() -> socket.socket:
        linux.enter_network_of(net.kernel.holder_pids[host])
        return socket.socket(*kind)

    return in_thread(made)


def raw_socket(net: LiveCampus, host: str, *, bypass: bool) -> socket.socket:
    """Sends whole frames from a host; `bypass` goes around its shaper and its egress program."""
    raw = socket_in(net, host, socket.AF_PACKET, socket.SOCK_RAW, 0)
    if bypass:
        raw.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
    raw.bind((f"{host}-eth0", 0))
    return raw


@dataclass(frozen=True)
class Machine:
    """What a campus could leave behind."""

    links: frozenset[str]
    namespaces: frozenset[int]
    holders: frozenset[int]
    pins: frozenset[str]
    mounts: str
    descriptors: int


def machine() -> Machine:
    """The machine as it is now, seen from the root namespace; only processes of this test's family count."""
    links = subprocess.run(["ip", "-br", "link"], check=True, capture_output=True, text=True).stdout
    pin_root = Path("/sys/fs/bpf/reclaimnet")
    family = _descendants(os.getpid())
    return Machine(
        links=frozenset(line.split()[0] for line in links.splitlines()),
        namespaces=frozenset(_namespace(pid) for pid in [os.getpid(), *family]),
        holders=frozenset(family),
        pins=frozenset(str(p) for p in pin_root.glob(f"{os.getpid():x}*")) if pin_root.exists() else frozenset(),
        mounts=Path("/proc/self/mounts").read_text(),
        descriptors=len(os.listdir("/proc/self/fd")),  # noqa: PTH208
    )


def _namespace(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return 0


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        found += [child, *_descendants(child)]
    return found
