"""The BPF programs of every host and of every host's port.

They are loaded before the links exist, attached with the links, read back by number.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import linux
from testbed.emulation.description.plan import FIRST_PORT_IFINDEX, CableEnd, CampusPlan
from testbed.emulation.description.shaping import LinkShape
from testbed.emulation.kernel import attachment
from testbed.emulation.netlink import NetlinkSocket
from testbed.errors import KernelMismatch, SetupError

if TYPE_CHECKING:
    from bpf.maps import HostMaps
    from bpf.ports import Limit, PortCounters, PortProgram

# over the shares that shapers and pacing inside the host hold exactly: metadata (EF) and ARP ride beside the grants
OWN_SLACK = 1.02
# headers of super-packets are estimated on the switch's side, up to 2 % too many
LINK_SLACK = 1.05
# twice what the host's own buckets let through at once (testbed/enforcement.py), so that an honest host never meets this
PORT_BURST_BYTES, PORT_BURST_S = 1 << 20, 0.04


@dataclass(slots=True)
class _Loaded:
    """A host's programs: descriptors until they are attached, numbers for as long as the campus runs."""

    fds: tuple[int, ...]
    ids: tuple[int, int]  # egress, ingress


class HostEnforcement:
    """Programs and maps of all hosts, pinned under `pin_dir`/HOST/.

    Descriptors are few (20000 a process is a usual limit, and 2000 hosts' programs and maps are 22000): two a host until it
    is attached, none after that; maps are opened again, from their pins, when they are asked for. Each switch stays mapped for
    writing: the kernel freezes no such map (BPF_MAP_FREEZE), so that no owner can keep others from it for ever.
    """

    def __init__(self, pin_dir: Path, coordinator: ipaddress.IPv4Address) -> None:
        self._pin_dir = pin_dir
        self._coordinator = coordinator
        self._loaded: dict[str, _Loaded] = {}
        self._opened: dict[str, HostMaps] = {}
        self._mappings: list[int] = []  # addresses

    def load(self, host: str) -> None:
        """Load and pin a host's programs; its switch learns the coordinator's address. Usable from several threads."""
        from bpf import objects
        from bpf.errors import BpfError

        try:
            programs = objects.load_host_programs(self._pin_dir / host)
        except BpfError as error:
            raise SetupError(f"BPF programs of {host}: {error}") from error
        try:
            programs.switch.allow_coordinator(self._coordinator)
            self._mappings.append(linux.map_page(programs.switch.fd))
            ids = attachment.program_id(programs.egress_fd), attachment.program_id(programs.ingress_fd)
            self._loaded[host] = _Loaded((os.dup(programs.egress_fd), os.dup(programs.ingress_fd)), ids)
        finally:
            programs.close()

    def attach(self, socket: NetlinkSocket, host: str, end: CableEnd) -> None:
        """Attach both programs to the host's interface; NetlinkRefused names it."""
        loaded = self._loaded[host]
        egress_fd, ingress_fd = loaded.fds
        socket.send(attachment.host_requests(end.ifindex, egress_fd, ingress_fd, end.name))
        _close(loaded)

    def read_back(self, socket: NetlinkSocket, host: str, end: CableEnd) -> None:
        """Raise KernelMismatch unless each hook runs exactly the program that was loaded for this host."""
        egress_id, ingress_id = self._loaded[host].ids
        attachment.check_attached(socket, end.ifindex, attachment.EGRESS, egress_id, "egress", end.name)
        attachment.check_attached(socket, end.ifindex, attachment.INGRESS, ingress_id, "ingress", end.name)

    def maps(self, host: str) -> HostMaps:
        """Return the maps of a loaded host, opened from their pins the first time; KeyError if it has none."""
        from bpf.maps import HostMaps

        if host not in self._loaded:
            raise KeyError(host)
        if host not in self._opened:
            self._opened[host] = HostMaps.open_pinned(self._pin_dir / host)
        return self._opened[host]

    def change(self, host: str, shape: LinkShape) -> None:
        """Give the host's aggregate bucket, if its agent has set it, the migration share of another shape of its end."""
        from bpf.layout import BucketMode
        from bpf.maps import HostMaps
        from testbed.enforcement import payload_rate, set_aggregate

        with contextlib.closing(HostMaps.open_pinned(self._pin_dir / host)) as maps:  # nine descriptors
            if maps.aggregate.state().mode is not BucketMode.ACCOUNT:
                set_aggregate(maps, payload_rate(shape.unreserved_bytes_per_s))

    def close(self) -> None:
        """Close all descriptors; pins stay until they are removed."""
        for loaded in self._loaded.values():
            _close(loaded)
        for maps in self._opened.values():
            maps.close()
        for address in self._mappings:
            linux.unmap_page(address)
        self._mappings.clear()
        self._loaded.clear()
        self._opened.clear()


class PortEnforcement:
    """The program of all hosts' ports, on the switches' side.

    `hold_migrations`: the testbed's own classes are held to the migration share (False: only counted, for baselines without
    enforcement); addresses and link rates are held always. Where checkpoints are below research they are no part of that.
    """

    def __init__(self, plan: CampusPlan, *, hold_migrations: bool) -> None:
        self._plan, self._holds = plan, hold_migrations
        self._program: PortProgram | None = None
        self._program_id = 0

    def load(self) -> None:
        """Load the program and write every port's record. Usable from any thread."""
        from bpf import ports
        from bpf.errors import BpfError

        try:
            self._program = ports.load_port_program(1 + max(map(self._number, self._plan.host_cables), default=0))
        except BpfError as error:
            raise SetupError(f"BPF program of the hosts' ports: {error}") from error
        self._program_id = attachment.program_id(self._program.fd)
        for host, cable in self._plan.host_cables.items():
            address, (link, own) = self._plan.spec.host_by_name[host].address, self._limits(cable.b.shape)
            rule = ports.PortRule(
                mac=cable.b.mac, ipv4=address, link=link, own=own, checkpoints_apart=cable.b.shape.borrows
            )
            self._program.table.set(self._number(host), rule)

    def _number(self, host: str) -> int:
        return self._plan.host_cables[host].a.ifindex - FIRST_PORT_IFINDEX

    def _limits(self, shape: LinkShape) -> tuple[Limit, Limit | None]:
        """Return a host's rate limits, of all traffic and of the testbed's own classes, for this shape of its cable."""
        from bpf import ports

        def limit(rate_bytes_per_s: float) -> Limit:
            burst_bytes = max(PORT_BURST_BYTES, int(rate_bytes_per_s * PORT_BURST_S))
            return ports.Limit(int(rate_bytes_per_s), burst_bytes)

        own = limit(shape.migration_bytes_per_s * OWN_SLACK) if self._holds else None
        return limit(shape.rate_bytes_per_s * LINK_SLACK), own

    def change(self, host: str, shape: LinkShape) -> None:
        """Hold the host's port to another shape of the host's end, while it is in use; KernelMismatch if it did not take."""
        assert self._program is not None
        number, wanted = self._number(host), self._limits(shape)
        self._program.table.set_limits(number, *wanted)
        found = self._program.table.limits(number)
        if found != wanted:
            raise KernelMismatch(f"limits of the port of {host}", wanted, found)

    def attach(self, socket: NetlinkSocket, hosts: Iterable[str] | None = None) -> None:
        """Attach the program to the ports of some hosts (default: all), in one batch; NetlinkRefused names one."""
        assert self._program is not None
        fd = self._program.fd
        requests = []
        for host in self._plan.host_cables if hosts is None else hosts:
            ifindex, name = self._plan.host_cables[host].a.ifindex, self._plan.host_cables[host].a.name
            requests.append(attachment.clsact(ifindex, name))
            requests.append(attachment.direct_action(ifindex, attachment.INGRESS, fd, "reclaim_port", name))
        socket.send(requests)

    def read_back(self, socket: NetlinkSocket) -> None:
        """Raise KernelMismatch unless every host's port runs exactly this program."""
        for cable in self._plan.host_cables.values():
            attachment.check_attached(
                socket, cable.a.ifindex, attachment.INGRESS, self._program_id, "port", cable.a.name
            )

    def limits(self, host: str) -> tuple[Limit, Limit | None]:
        """Return the switch's limits on a host, of all traffic and of the testbed's own classes; KeyError as `counters`."""
        if self._program is None:
            raise KeyError(host)
        return self._program.table.limits(self._number(host))

    def counters(self, host: str) -> PortCounters:
        """Return the traffic that the switch took from a host, and dropped; KeyError: no such host or not loaded."""
        if self._program is None:
            raise KeyError(host)
        return self._program.table.counters(self._number(host))

    def close(self) -> None:
        """Close the descriptors; the kernel keeps what is attached until the ports are gone."""
        if self._program:
            self._program.close()
            self._program = None


def _close(loaded: _Loaded) -> None:
    for fd in loaded.fds:
        os.close(fd)
    loaded.fds = ()
