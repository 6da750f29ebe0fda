"""Capabilities of this machine, found by using each in a scratch namespace that is gone afterwards.

Version numbers lie (distributions configure kernels differently), so each feature is tried. A probe returns a detail or
raises OSError or NetlinkRefused; what its absence means for the user, and which command mends it, stand above it.
"""

from __future__ import annotations

import os
import socket as sockets
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING

from bpf.btf import drop_reasons
from bpf.errors import BpfError
from bpf.observer import Observer, inode_of
from bpf.ports import load_port_program
from testbed import control_groups, linux
from testbed.emulation.description import link_requests, shaping
from testbed.emulation.description.plan import Bridge, Cable, CableEnd, CampusPlan, Tunnel
from testbed.emulation.kernel import attachment
from testbed.emulation.kernel.build import in_thread
from testbed.emulation.kernel.delay_line.compile import compiled
from testbed.emulation.kernel.openvswitch import PROGRAMS, kernel_datapath
from testbed.emulation.kernel.underlay import check_underlay
from testbed.emulation.netlink import NetlinkRequest, NetlinkSocket
from testbed.emulation.safety.settings import NEIGHBOURS, out_of_reach
from testbed.errors import SetupError, TestbedError
from testbed.workloads import criu, sandbox
from topologies.spec import Link

if TYPE_CHECKING:
    from rich.table import Table

SCRATCH = CableEnd("probe", "probe0", 0, 100, b"\x02\0\0\0\0\1", shaping.LinkShape(5_000_000_000))
SCRATCH_PEER = CableEnd("probe", "probe1", 1, 101, b"\x02\0\0\0\0\2", shaping.LinkShape(12_500_000))
SCRATCH_BRIDGE = Bridge("probebr", 102, b"\x02\0\0\0\0\3")
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23


class Need(StrEnum):
    """A part of the testbed that requires a capability."""

    CAMPUS = "campus"  # every campus
    ENFORCEMENT = "enforcement"  # a campus with the BPF programs
    DELAY = "delay or loss"  # a campus with delay or loss on a link
    MACHINES = "several machines"  # a campus of which this machine carries a part
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class Capability:
    """A feature of the machine."""

    name: str
    present: bool
    detail: str  # what was seen
    meaning: str  # of its absence, for the user
    mend: str  # the command that mends it
    need: Need


class Absent(TestbedError):
    """A probe's finding that the feature is not there."""


@dataclass(frozen=True, slots=True)
class _Probe:
    name: str
    run: Callable[[], str]
    need: Need
    meaning: str
    mend: str
    cheap: bool = False  # makes no namespace


def probe(needs: Collection[Need] = tuple(Need)) -> list[Capability]:
    """Try every feature of the given needs (default: all). Leaves nothing behind."""
    return [_try(p) for p in PROBES if p.need in needs]


def require_before_start(plan: CampusPlan) -> None:
    """Raise SetupError if the machine lacks a prerequisite: root, programs, a delay line if a link asks.

    The rest is not probed here: a scratch namespace takes the kernel some 50 ms to remove, in the background of the start.
    """
    _require([_try(p) for p in PROBES if p.need is Need.CAMPUS and p.cheap], plan)
    if any(cable.is_cut for cable in plan.cables):
        _require(probe([Need.DELAY]), plan)
    if plan.tunnels:
        _require(probe([Need.MACHINES]), plan)
        check_underlay(plan.tunnels[0].here)


def explain_failure(plan: CampusPlan, *, enforcement: bool) -> None:
    """Raise SetupError naming each lack and its remedy, if a lack explains the kernel's refusal."""
    _require(probe([Need.CAMPUS, Need.ENFORCEMENT] if enforcement else [Need.CAMPUS]), plan)


def _require(found: Sequence[Capability], plan: CampusPlan) -> None:
    lines = []
    for lack in (c for c in found if not c.present):
        line = f"{lack.name} is missing ({lack.detail}): {lack.meaning}; {lack.mend}"
        if lack.need is Need.DELAY:
            links = ", ".join(
                f"{link.a}-{link.b}" for link in [cable.link for cable in plan.cables if cable.is_cut][:5]
            )
            line += f". Links of this campus that ask for it: {links}"
        lines.append(line)
    if lines:
        raise SetupError("\n".join(lines))


def doctor_table(found: Sequence[Capability] | None = None) -> Table:
    """Return the findings as a table for people."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="What this machine can do", show_lines=False)
    for column in ("feature", "", "seen", "needed by", "without it", "what mends it"):
        table.add_column(column, overflow="fold")
    for c in probe() if found is None else found:
        style = "green" if c.present else "yellow" if c.need is Need.OPTIONAL else "red"
        table.add_row(
            c.name,
            Text("yes" if c.present else "no", style),
            c.detail,
            c.need.value,
            "" if c.present else c.meaning,
            "" if c.present else c.mend,
        )
    return table


def _try(p: _Probe) -> Capability:
    try:
        present, detail = True, in_thread(p.run)
    except (OSError, BpfError, TestbedError) as error:
        present, detail = False, str(error).partition("\n")[0]
    return Capability(p.name, present, detail, p.meaning, p.mend, p.need)


def _feature(
    name: str, need: Need, meaning: str, mend: str, *, cheap: bool = False
) -> Callable[[Callable[[], str]], None]:
    """Return a row of `PROBES`, in the order of the doctor's table: `meaning` is what its absence means for the user."""
    return lambda run: PROBES.append(_Probe(name, run, need, meaning, mend, cheap))


def _in_scratch(*requests: NetlinkRequest) -> None:
    """Make a bridge with a veth pair, then what is asked, in a namespace that goes with the thread."""
    cable = Cable(Link("probe0", "probe1", 1.0), SCRATCH, SCRATCH_PEER)
    veth = link_requests.cable(cable, SCRATCH_BRIDGE, None)
    linux.unshare(linux.CLONE_NEWNET)
    with NetlinkSocket() as netlink:
        netlink.send([link_requests.bridge(SCRATCH_BRIDGE), veth, *requests])


def _program(*names: str) -> Callable[[], str]:
    def run() -> str:
        absent = [name for name in names if not linux.find_program(name)]
        if absent:
            raise Absent(f"not on PATH: {', '.join(absent)}")
        return ", ".join(names)

    return run


_KERNEL = "use a kernel that has it (a stock distribution kernel does)"
LIVE = "reclaimnet-testbed[live]"
PROBES: list[_Probe] = []

# what every campus needs


@_feature("root", Need.CAMPUS, "namespaces and BPF cannot be made", "run as root (sudo)", cheap=True)
def _root() -> str:
    if os.geteuid() != 0:
        raise Absent(f"user id is {os.geteuid()}")
    return "user id is 0"


@_feature("namespaces, veth, bridge", Need.CAMPUS, "no hosts, links and switches", "modprobe veth bridge, as root")
def _bridge_and_veth() -> str:
    _in_scratch()
    return "a veth pair on a bridge, in a namespace"


@_feature("HTB, 64-bit rates", Need.CAMPUS, "links cannot be held to their rates", "modprobe sch_htb")
def _htb() -> str:
    _in_scratch(*shaping.requests(SCRATCH.ifindex, SCRATCH.shape, SCRATCH.name))
    return "accepted"


_feature("mnexec, ifconfig", Need.CAMPUS, "no commands in hosts", "apt-get install mininet net-tools", cheap=True)(
    _program("mnexec", "ifconfig")
)


@_feature("Python packages", Need.CAMPUS, "agents and switches do not start", f"pip install '{LIVE}'", cheap=True)
def _packages() -> str:
    if absent := [name for name in ("cryptography", "jwt", "os_ken", "pyseccomp") if find_spec(name) is None]:
        raise Absent(f"not installed: {', '.join(absent)}")
    return "all of the extra `live`"


@_feature("kernel settings", Need.CAMPUS, "hosts cannot be set up", "run the container with --privileged", cheap=True)
def _settings() -> str:
    if os.statvfs("/proc/sys").f_flag & os.ST_RDONLY:
        raise Absent("/proc/sys is read-only")
    return "/proc/sys can be written"


# what a campus with enforcement needs


@_feature("BPF programs", Need.ENFORCEMENT, "no classes, buckets and kill-switch in the kernel", _KERNEL)
def _bpf() -> str:
    load_port_program(1).close()
    return "a program was loaded"


@_feature("clsact, cls_bpf", Need.ENFORCEMENT, "programs cannot be attached", "modprobe sch_ingress cls_bpf")
def _clsact() -> str:
    program = load_port_program(1)
    try:
        _in_scratch(
            attachment.clsact(SCRATCH.ifindex, SCRATCH.name),
            attachment.direct_action(SCRATCH.ifindex, attachment.INGRESS, program.fd, "probe", SCRATCH.name),
        )
    finally:
        program.close()
    return "a program was attached"


@_feature("bpffs", Need.ENFORCEMENT, "the owner's switch cannot be reached from another terminal", _KERNEL)
def _bpffs() -> str:
    if "bpf" not in Path("/proc/filesystems").read_text().split():
        raise Absent("the kernel has no bpf file system")
    return "the campus mounts it on /sys/fs/bpf"


# what some campuses need, and what makes them better


@_feature(
    "delay line", Need.DELAY, "a campus with delay or loss on a link is refused", "apt-get install clang; " + _KERNEL
)
def _delay_line() -> str:
    program = compiled()
    linux.unshare(linux.CLONE_NEWNET)
    with sockets.socket(sockets.AF_PACKET, sockets.SOCK_RAW) as packets:
        for option in (PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING):
            packets.setsockopt(SOL_PACKET, option, 1)
    return f"compiled ({program.name}); makes delay, jitter and loss"


@_feature("VXLAN", Need.MACHINES, "a campus on several machines is refused", "modprobe vxlan; " + _KERNEL)
def _vxlan() -> str:
    made = Tunnel(SCRATCH, 1, *map(IPv4Address, ("127.0.0.1", "127.0.0.2")))
    linux.unshare(linux.CLONE_NEWNET)
    with NetlinkSocket() as netlink:
        netlink.send([link_requests.tunnel(made, threading.get_native_id())])
    return "a trunk's end was made"


@_feature("BPF JIT", Need.OPTIONAL, "programs run some ten times slower", "sysctl net.core.bpf_jit_enable=1")
def _jit() -> str:
    setting = Path("/proc/sys/net/core/bpf_jit_enable")
    if setting.exists() and setting.read_text().strip() == "0":
        raise Absent(f"{setting} is 0")
    return "on"


@_feature(
    "BBR",
    Need.OPTIONAL,
    "paced transfers use CUBIC: 91-96 % of a grant on a crowded link instead of 99 %",
    "modprobe tcp_bbr",
)
def _bbr() -> str:
    with sockets.socket(sockets.AF_INET, sockets.SOCK_STREAM) as tcp:
        tcp.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_CONGESTION, b"bbr")
    return "can be chosen for a socket"


@_feature(
    "typed tracepoints",
    Need.OPTIONAL,
    "what was late is not told apart into a busy processor and a full queue",
    _KERNEL + ", 5.17 or newer, as root",
)
def _tracepoints() -> str:
    with Observer({"here": inode_of("self")}):
        return f"{len(drop_reasons())} reasons for which a packet is dropped"


@_feature(
    "CRIU",
    Need.OPTIONAL,
    'no jobs with checkpoint_by = "criu": programs that cannot checkpoint themselves begin again at each reclaim',
    f"apt-get install criu (4.0 or newer for new kernels), or {criu.COMMAND} = the path of one",
)
def _criu() -> str:
    found = criu.command()
    return f"{found} {criu.version(found)}"


@_feature(
    "sandbox",
    Need.OPTIONAL,
    'jobs run without this part of it, those with sandbox = "required" fail; without groups no host has `cpu`, `cores`, `memory`',
    "as it says; " + _KERNEL,
)
def _sandbox() -> str:
    if lacking := sandbox.lacks():
        raise Absent("; ".join(f"{part}: {why}" for part, why in lacking.items()))
    found = sorted(f"{name} v{each.version}" for name, each in control_groups.controllers().items())
    return (
        f"{', '.join(found)}; own user, processes, mounts, IPC, network; Landlock {sandbox.landlock_version()}; seccomp"
    )


@_feature(
    "size of the neighbour table",
    Need.OPTIONAL,
    "the machine's own limit holds for all namespaces together (1024 unless raised): some 30 hosts that all "
    "talk to each other",
    "sysctl net.ipv4.neigh.default.gc_thresh3=65536 in the machine's own network namespace, outside of any container",
)
def _neighbours() -> str:
    beyond = out_of_reach()
    if beyond:
        raise Absent(f"not to be written here: {', '.join(map(str, beyond))}")
    return f"{NEIGHBOURS}/gc_thresh* can be raised"


@_feature(
    "Open vSwitch in the kernel",
    Need.OPTIONAL,
    "Open vSwitch forwards in user space, by packet sockets",
    "modprobe openvswitch",
)
def _openvswitch() -> str:
    if not kernel_datapath():
        raise Absent("no such module, loaded or to be loaded")
    return "it forwards"


_feature(
    "Open vSwitch",
    Need.OPTIONAL,
    'no campus with fabric = "openvswitch" (several paths, an OpenFlow controller)',
    "apt-get install openvswitch-switch",
)(_program(*PROGRAMS))
_feature(
    "Mininet's programs",
    Need.OPTIONAL,
    "net.pingAll(), net.iperf(), or Mininet's own LinuxBridge does not work",
    "apt-get install iputils-ping iperf bridge-utils",
)(_program("ping", "iperf", "brctl"))
