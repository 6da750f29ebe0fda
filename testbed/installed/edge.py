"""The kernel's part of an installed agent: programs for its guests' sockets, and a fence before the coordinator's port.

Guests are the processes of the service's control group: the agent, whose transfers they are, and its jobs. Nothing of another
process is charged, marked or closed. The group ends with the service, and with it every socket and its kill-switch.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from bpf.objects import load_guest_programs
from testbed.control_groups import own_group
from testbed.errors import SetupError

FILTER: Final = ("egress", "prio", "49720", "handle", "0x1", "bpf")
TABLE: Final = "inet reclaimnet_agent"


def enter_group() -> str:
    """Move this process below the service's control group, so that jobs get groups beside it; return the service's."""
    group = own_group()
    folder = unified() / group / "agent"
    folder.mkdir(exist_ok=True)
    (folder / "cgroup.procs").write_text("0")
    return group


def unified() -> Path:
    """Return where control groups of version 2 are mounted. SetupError: nowhere."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        if line.split()[2] == "cgroup2":
            return Path(line.split()[1])
    raise SetupError("no control groups of version 2 are mounted: an agent needs one for its guests")


def hold(group: str, interface: str, pin_dir: Path, coordinator: str) -> None:
    """Put the programs on the group and the interface. BpfError, SetupError: the kernel takes them not."""
    descriptor = os.open(unified() / group, os.O_RDONLY | os.O_DIRECTORY)
    try:
        pin = load_guest_programs(pin_dir, descriptor, IPv4Address(coordinator))
    finally:
        os.close(descriptor)
    with suppress(SetupError):  # it has hooks already
        _run("tc", "qdisc", "add", "dev", interface, "clsact")
    _run("tc", "filter", "replace", "dev", interface, *FILTER, "direct-action", "object-pinned", str(pin))


def let_go(interface: str) -> None:
    """Detach the program from an interface, and remove the hooks unless another program is attached."""
    with suppress(SetupError):  # it is gone
        _run("tc", "filter", "del", "dev", interface, *FILTER)
    if not any(_run("tc", "filter", "show", "dev", interface, hook) for hook in ("ingress", "egress")):
        with suppress(SetupError):
            _run("tc", "qdisc", "del", "dev", interface, "clsact")


def fence(coordinator: str, port: int) -> None:
    """Let no user but root reach the port at which the coordinator listens to agents."""
    rule = f"ip daddr {coordinator} tcp dport {{ {port}, {port + 1} }} meta skuid != 0 reject"
    chain = f"chain output {{ type filter hook output priority 0; {rule}; }}"
    _run("nft", "-f", "-", given=f"table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n{chain}\n}}\n")


def open_fence() -> None:
    """Take the fence away."""
    with suppress(SetupError):  # there is none
        _run("nft", f"delete table {TABLE}")


def _run(*words: str, given: str = "") -> str:
    done = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()
