"""How soon the owner's switch closes a host: from the store into the kernel's memory to the first packet that is dropped.

In a network namespace of its own the programs hang on the loopback as on a host's interface. Right after the store a
datagram is sent, which the loopback delivers within the sender's system call: so the latency is the store's and the next
packet's way through the stack, and does not depend on when another packet would have come or its process been
scheduled. The kernel's clock stamps both moments (`set_at_ns` just before the store, `first_drop_ns` in the program).
Beside it: how long `nft` or `iptables`, started as a process by a script, takes to add a rule that drops the same.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from bpf.errors import BpfError
from bpf.layout import Mode
from bpf.objects import HostPrograms, load_host_programs
from testbed.emulation.kernel.attachment import host_requests
from testbed.emulation.kernel.netlink import NetlinkRefused, NetlinkSocket
from topologies.errors import TestbedError

CLONE_NEWNET = 0x40000000
ROUNDS, RULE_ROUNDS = 300, 20
PORT, PAYLOAD_BYTES = 9, 100


@dataclass(frozen=True, slots=True)
class FirewallRule:
    """A tool's arguments: once before, to close, and to open again."""

    prepare: tuple[str, ...]
    close: str
    open: str


RULES = {
    "nft": FirewallRule(
        ("add table inet kill", "add chain inet kill in { type filter hook input priority 0; }"),
        f"add rule inet kill in udp dport {PORT} drop",
        "flush chain inet kill in",
    ),
    "iptables": FirewallRule((), f"-I INPUT -p udp --dport {PORT} -j DROP", "-F INPUT"),
}


class CannotMeasureError(TestbedError):
    """This machine does not let us: the text says why."""


def measure_kill_switch(rounds: int = ROUNDS) -> dict[str, Any]:
    """`switch`: latencies in s; `passed`: datagrams that got in after a store; `rules`: latencies of each tool that is there.

    CannotMeasureError: not root, no BPF, or no namespaces.
    """
    if os.geteuid() != 0:
        raise CannotMeasureError("it needs root: CAP_BPF, CAP_NET_ADMIN and a network namespace")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        answer: dict[str, Any] = {"cannot": "the measuring process was interrupted"}
        try:
            if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "no network namespace may be made")
            answer = _measure(rounds)
        except (OSError, BpfError, NetlinkRefused, subprocess.SubprocessError) as error:
            answer = {"cannot": f"{error}"}
        finally:
            with os.fdopen(writer, "w") as file:
                json.dump(answer, file)
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    os.waitpid(child, 0)
    answer = json.loads(text) if text else {"cannot": "the measuring process died"}
    if "cannot" in answer:
        raise CannotMeasureError(answer["cannot"])
    return answer


def _measure(rounds: int) -> dict[str, Any]:
    _call(["ip", "link", "set", "lo", "up"])
    host = load_host_programs()
    try:
        with NetlinkSocket() as netlink:
            netlink.send(host_requests(socket.if_nametoindex("lo"), host.egress_fd, host.ingress_fd, "lo"))
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        ):
            sink.bind(("127.0.0.1", PORT))
            sink.setblocking(False)
            switch = [_latency(host, sender, sink) for _ in range(rounds)]
        rules = {name: _rule_times_s(path, RULES[name]) for name in RULES if (path := shutil.which(name))}
    finally:
        host.close()
    latencies_s, passed = zip(*switch, strict=True)
    found = {name: times for name, times in rules.items() if times}
    return {"switch": list(latencies_s), "passed": sum(passed), "rules": found}


def _latency(host: HostPrograms, sender: socket.socket, sink: socket.socket) -> tuple[float, int]:
    """(s from the store to the first drop, datagrams that got in after the store)."""
    host.switch.set(Mode.OFF)
    sender.sendto(bytes(PAYLOAD_BYTES), ("127.0.0.1", PORT))
    if not _received(sink):
        raise OSError("a datagram did not come while the switch was open")
    host.switch.set(Mode.ISOLATE)
    sender.sendto(bytes(PAYLOAD_BYTES), ("127.0.0.1", PORT))
    status = host.switch.status()
    if not status.first_drop_ns:
        raise OSError("the datagram after the store was not dropped")
    return (status.first_drop_ns - status.set_at_ns) * 1e-9, _received(sink)


def _received(sink: socket.socket) -> int:
    """Datagrams that are waiting."""
    count = 0
    while True:
        try:
            sink.recv(2 * PAYLOAD_BYTES)
            count += 1
        except BlockingIOError:
            return count


def _rule_times_s(path: str, rule: FirewallRule) -> list[float]:
    """How long each rule takes to be there; empty where this kernel knows none of the tool's."""
    try:
        for arguments in rule.prepare:
            _call([path, *arguments.split()])
        times_s = []
        for _ in range(RULE_ROUNDS):
            began_s = time.monotonic()
            _call([path, *rule.close.split()])
            times_s.append(time.monotonic() - began_s)
            _call([path, *rule.open.split()])
        return times_s
    except subprocess.CalledProcessError:
        return []


def _call(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)
