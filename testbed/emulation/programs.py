"""The BPF programs of every host: loaded and pinned before the links exist, attached with the links, read back by number."""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.emulation.netlink import NetlinkSocket, Request, attributes
from testbed.emulation.plan import End, ipv6_address
from testbed.emulation.shaping import TC_MESSAGE, TCA_KIND, TCA_OPTIONS
from testbed.errors import KernelMismatch, SetupError

if TYPE_CHECKING:
    from bpf.objects import HostPrograms

RTM_GETTFILTER = 46
INGRESS_PARENT, EGRESS_PARENT = 0xFFFFFFF2, 0xFFFFFFF3  # the two hooks of clsact
TCA_BPF_FLAGS, TCA_BPF_ID = 8, 11
DIRECT_ACTION = 1


class HostEnforcement:
    """Programs and maps of all hosts, pinned under `pin_dir`/HOST/."""

    def __init__(self, pin_dir: Path, coordinator: ipaddress.IPv4Address, *, ipv6: bool) -> None:
        self.programs: dict[str, HostPrograms] = {}
        self._pin_dir = pin_dir
        self._coordinator = coordinator
        self._coordinator6 = ipv6_address(coordinator) if ipv6 else None

    def load(self, host: str) -> None:
        """Load and pin a host's programs; its switch learns the coordinator's address. Usable from several threads."""
        from bpf import objects
        from bpf.errors import BpfError

        try:
            programs = objects.load_host_programs(self._pin_dir / host)
        except BpfError as error:
            raise SetupError(f"BPF programs of {host}: {error}") from error
        self.programs[host] = programs
        programs.switch.allow_coordinator(self._coordinator, self._coordinator6)

    def attach(self, socket: NetlinkSocket, host: str, end: End) -> None:
        """Attach both programs to the host's interface; NetlinkRefused names it."""
        from bpf import attach

        programs = self.programs[host]
        messages = attach.attach_requests(end.ifindex, programs.egress_fd, programs.ingress_fd, sequence=0)
        socket.send([Request(data, f"BPF programs of {end.name}") for data in messages])

    def read_back(self, socket: NetlinkSocket, host: str, end: End) -> None:
        """KernelMismatch unless each hook runs exactly the program that was loaded for this host."""
        programs = self.programs[host]
        for parent, fd, hook in (
            (EGRESS_PARENT, programs.egress_fd, "egress"),
            (INGRESS_PARENT, programs.ingress_fd, "ingress"),
        ):
            wanted = [(program_id(fd), DIRECT_ACTION)]
            found = _filters(socket, end, parent)
            if found != wanted:
                raise KernelMismatch(f"{hook} program of {end.name} (id, flags)", wanted, found)

    def close(self) -> None:
        """Close all descriptors; pins stay until they are removed."""
        for programs in self.programs.values():
            programs.close()
        self.programs.clear()


def program_id(fd: int) -> int:
    """The kernel's number of a loaded program, from the descriptor's fdinfo."""
    for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines():
        if line.startswith("prog_id:"):
            return int(line.split()[1])
    raise KernelMismatch(f"descriptor {fd}", "a BPF program", "no prog_id")


def _filters(socket: NetlinkSocket, end: End, parent: int) -> list[tuple[int, int]]:
    body = TC_MESSAGE.pack(0, 0, 0, end.ifindex, 0, parent, 0)
    found = []
    for answer in socket.dump(RTM_GETTFILTER, body, f"filters of {end.name}"):
        values = attributes(answer[TC_MESSAGE.size :])
        options = attributes(values.get(TCA_OPTIONS, b""))
        if values.get(TCA_KIND) == b"bpf\0" and TCA_BPF_ID in options:
            (number,) = struct.unpack("=I", options[TCA_BPF_ID])
            (flags,) = struct.unpack("=I", options.get(TCA_BPF_FLAGS, b"\0\0\0\0"))
            found.append((number, flags))
    return found
