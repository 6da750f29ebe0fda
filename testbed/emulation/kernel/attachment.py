"""The two hooks of an interface (clsact) and the direct-action filters on them.

A filter names its program by file descriptor: the process that sends the request must be the one that loaded the program, or
have inherited the descriptor. clsact is chosen over TCX because a TCX link costs 8 to 16 ms (synchronize_rcu), a filter less
than one.
"""

from __future__ import annotations

import struct
from pathlib import Path

from testbed.emulation.description.shaping import (
    FILTER_INFO,
    RTM_NEWQDISC,
    RTM_NEWTFILTER,
    TC_MESSAGE,
    TCA_KIND,
    TCA_OPTIONS,
    tc_body,
    tc_dump,
)
from testbed.emulation.netlink import CREATE, EXCL, NetlinkRequest, NetlinkSocket, attributes, request, text, u32
from testbed.errors import KernelMismatch

RTM_GETTFILTER = 46
CLSACT_HANDLE, CLSACT_PARENT = 0xFFFF0000, 0xFFFFFFF1
INGRESS, EGRESS = 0xFFFFFFF2, 0xFFFFFFF3  # the two hooks of clsact
TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_FLAGS, TCA_BPF_ID = 6, 7, 8, 11
DIRECT_ACTION = 1
FILTER_HANDLE = 1


def host_requests(ifindex: int, egress_fd: int, ingress_fd: int, name: str) -> list[NetlinkRequest]:
    """Return requests that attach both programs of a host to its interface `name`."""
    return [
        clsact(ifindex, name),
        direct_action(ifindex, EGRESS, egress_fd, "reclaim_egress", name),
        direct_action(ifindex, INGRESS, ingress_fd, "reclaim_ingress", name),
    ]


def clsact(ifindex: int, name: str) -> NetlinkRequest:
    """Return the hooks of interface `name`; of no effect if it has them.

    Made some milliseconds before the first program, and before the interface is up, they do not wait for the kernel's readers.
    """
    body = tc_body(ifindex, CLSACT_HANDLE, CLSACT_PARENT, "clsact")
    return request(RTM_NEWQDISC, CREATE, body, f"BPF programs of {name}")


def direct_action(ifindex: int, hook: int, fd: int, program: str, name: str) -> NetlinkRequest:
    """Return a loaded program on a hook of interface `name`."""
    options = u32(TCA_BPF_FD, fd) + text(TCA_BPF_NAME, program) + u32(TCA_BPF_FLAGS, DIRECT_ACTION)
    body = tc_body(ifindex, FILTER_HANDLE, hook, "bpf", options, FILTER_INFO)
    return request(RTM_NEWTFILTER, CREATE | EXCL, body, f"BPF programs of {name}")


def attached(netlink: NetlinkSocket, ifindex: int, hook: int, name: str) -> list[tuple[int, int]]:
    """Return (number, flags) of the programs on a hook, as the kernel reports them."""
    found = []
    for answer in netlink.dump(RTM_GETTFILTER, tc_dump(ifindex, hook), f"filters of {name}"):
        values = attributes(answer[TC_MESSAGE.size :])
        options = attributes(values.get(TCA_OPTIONS, b""))
        if values.get(TCA_KIND) == b"bpf\0" and TCA_BPF_ID in options:
            (number,) = struct.unpack("=I", options[TCA_BPF_ID])
            (flags,) = struct.unpack("=I", options.get(TCA_BPF_FLAGS, b"\0\0\0\0"))
            found.append((number, flags))
    return found


def check_attached(netlink: NetlinkSocket, ifindex: int, hook: int, number: int, program: str, name: str) -> None:
    """Raise KernelMismatch unless the hook runs exactly the program of that number."""
    found = attached(netlink, ifindex, hook, name)
    if found != [(number, DIRECT_ACTION)]:
        raise KernelMismatch(f"{program} program of {name} (id, flags)", [(number, DIRECT_ACTION)], found)


def program_id(fd: int) -> int:
    """Return the kernel's number of a loaded program, from the descriptor's fdinfo."""
    for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines():
        if line.startswith("prog_id:"):
            return int(line.split()[1])
    raise KernelMismatch(f"descriptor {fd}", "a BPF program", "no prog_id")
