"""Host under a storm of SYNs from a network namespace beside it, and the SYNs that it still lets in.

The storm's cable is a veth pair of its own, so neither a switch nor a shaper stands between. On the host's end hang the
host's own programs; the listener is a process in the host's network. Answers are stateless (SYN cookies). So a SYN that
gets past the owner's switch is answered once, at once, and any other never. The storm runs on one processor, the
owner's act and what it starts on another.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.benchmarks.nodes import Node, run_in
from testbed.emulation.kernel.attachment import host_requests
from testbed.emulation.kernel.delay_line.compile import compiled
from testbed.emulation.netlink import NetlinkSocket
from testbed.errors import SetupError
from testbed.namespaces import NetworkNamespace

SOURCE = Path(__file__).with_name("syn_storm.c")
HOST_END, STORM_END = "kill0", "storm0"
HOST_MAC, STORM_MAC, CLIENT_MAC = "02:00:00:77:00:01", "02:00:00:77:00:02", "02:00:00:77:00:03"
HOST_ADDRESS, STORM_ADDRESS = "10.177.0.1", "10.177.0.2"
# the SYNs' source: no machine has it, so no machine resets what is answered
SYN_SOURCE = "10.177.0.3"
PORT = 7009
LEAD_S, TAIL_S = 0.002, 0.003  # of the storm before the act, and after the call is over, at least
LEAD_SYNS, TAIL_SYNS = 50, 100  # the same; a busy machine may keep the storm from its processor
ANSWER_S = 10.0
_WORDS = struct.Struct("=15Q")  # struct shared of syn_storm.c
_COUNTS = ("sent", "answered", "let_in_after_return", "missed")
_TIMES = ("last_answer_ns", "refused_ns", "let_in_ns")
_NAMES = ("round", "stop", "act_ns", "returned_ns", "pause_ns", "begun", "done", *_COUNTS, *_TIMES, "is_full")
_AT = {name: number for number, name in enumerate(_NAMES)}


@dataclass(frozen=True, slots=True)
class Trial:
    """Act of the owner under the storm."""

    # from the act to the answer of the last SYN that got in; 0: none got in after the act
    last_let_in_s: float
    first_refused_s: float  # from the act to the sending of the first SYN after it, which did not get in
    gap_s: float  # between the sending of these two SYNs: the storm sees no finer
    call_s: float  # how long the owner's call, or command, took
    sent: int  # SYNs of the trial
    answered: int
    let_in_after_return: int  # SYNs sent after the call was over, that got in: a switch that closes has none
    missed: int  # SYNs without an answer before the last that got in: lost on the way
    dropped: int | None  # what the program has counted as dropped; None: another hand closed the host
    observed: int | None = None  # drops that bcc's observer saw in the host's network; None: none looked
    # packets that came to the host by its other cables meanwhile: a closed host drops these, too
    others: int = 0

    @property
    def counts_agree(self) -> bool:
        """True if the program dropped the SYNs without an answer, and at most the packets by other cables besides."""
        return self.dropped is None or self._explains(self.dropped)

    @property
    def observer_agrees(self) -> bool:
        """True if the same holds of the drops that bcc's observer saw."""
        return self.observed is None or self._explains(self.observed)

    def _explains(self, drops: int) -> bool:
        return 0 <= drops - (self.sent - self.answered) <= self.others


class SynStorm:
    """Process of the storm, which sleeps between rounds."""

    def __init__(self, process: subprocess.Popen[str], memory: mmap.mmap) -> None:
        self._process, self._memory, self._round = process, memory, 0
        self._words = memoryview(memory).cast("Q")

    def trial(self, act: Callable[[], object], dropped: Callable[[], int] | None = None, pause_s: float = 0.0) -> Trial:
        """Run the storm, with SYNs at least `pause_s` apart, and the act in its midst.

        SetupError: the storm died, or the trial has no refused SYN.
        """
        words = self._words
        self._round += 1
        words[_AT["act_ns"]] = words[_AT["returned_ns"]] = 0
        words[_AT["pause_ns"]] = round(pause_s * 1e9)
        words[_AT["round"]] = self._round
        self._await("begun")
        # a little more or less, so that the act falls anywhere between two SYNs
        time.sleep(LEAD_S + (self._round * 7919 % 997) * 1e-6)
        self._await("sent", LEAD_SYNS)
        act_ns = time.monotonic_ns()
        try:
            act()
        finally:
            returned_ns = time.monotonic_ns()
            sent = words[_AT["sent"]]
            time.sleep(TAIL_S)
            self._await("sent", sent + TAIL_SYNS)
            words[_AT["act_ns"]], words[_AT["returned_ns"]] = act_ns, returned_ns
            words[_AT["stop"]] = self._round
            self._await("done")
        found = {name: int(words[at]) for name, at in _AT.items()}
        if not found["answered"] or found["is_full"] or not found["refused_ns"]:
            raise SetupError(f"a trial without a refused SYN: {found}")
        return Trial(
            last_let_in_s=max(0, found["last_answer_ns"] - act_ns) * 1e-9,
            first_refused_s=(found["refused_ns"] - act_ns) * 1e-9,
            gap_s=(found["refused_ns"] - found["let_in_ns"]) * 1e-9,
            call_s=(returned_ns - act_ns) * 1e-9,
            sent=found["sent"],
            answered=found["answered"],
            let_in_after_return=found["let_in_after_return"],
            missed=found["missed"],
            dropped=dropped() if dropped else None,
        )

    def _await(self, word: str, least: int | None = None) -> None:
        """Wait until a word is the round, or `least`."""
        limit_s = time.monotonic() + ANSWER_S
        while self._words[_AT[word]] < (self._round if least is None else least):
            if self._process.poll() is not None or time.monotonic() > limit_s:
                status = self._process.poll()
                found = {name: int(self._words[at]) for name, at in _AT.items()}
                self._process.kill()
                said = self._process.communicate()[1].strip()
                raise SetupError(f"the storm's process does not go on: exit status {status}, {said} {found}")
            time.sleep(50e-6)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._words.release()
        self._memory.close()


class Listener:
    """Listener in the host's network, opened and closed by order; a `Node` serves it."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def serve(self, order: dict[str, Any]) -> dict[str, Any]:
        """Listen, or close the listener."""
        if self._socket is not None:
            self._socket.close()
        self._socket = socket.create_server((HOST_ADDRESS, PORT), backlog=4096) if order["listens"] else None
        return {}


@dataclass(frozen=True, slots=True)
class Arena:
    """Host under the storm."""

    host: NetworkNamespace
    storm: SynStorm
    application: Node

    @property
    def inode(self) -> int:
        """Inode of the host's network namespace, its key for observers."""
        assert self.host.fd is not None
        return os.fstat(self.host.fd).st_ino

    def received_by_others(self) -> int:
        """Return the count of packets that came to the host by its other cables."""
        with self.host.entered():
            lines = Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]
        counts = (line.partition(":") for line in lines)
        return sum(int(words.split()[1]) for name, _, words in counts if name.strip() not in (HOST_END, "lo"))


@contextmanager
def arena(host: NetworkNamespace, egress_fd: int, ingress_fd: int) -> Iterator[Arena]:
    """Yield `host` with a storm's cable, its programs on it, a listener and the storm; all of it is removed after."""
    program = compiled(SOURCE)
    with contextlib.ExitStack() as last:
        outside = last.enter_context(closing(Node()))  # its cable goes with it
        ends = f"{STORM_END} address {STORM_MAC} type veth peer name {HOST_END} address {HOST_MAC}"
        outside.run(*f"ip link add {ends}".split())
        outside.run(*f"ip link set {HOST_END} netns /proc/{os.getpid()}/fd/{host.fd}".split())
        _ready(outside.network, STORM_END, f"{STORM_ADDRESS}/24", {HOST_ADDRESS: HOST_MAC})
        _ready(host, HOST_END, f"{HOST_ADDRESS}/24", {STORM_ADDRESS: STORM_MAC, SYN_SOURCE: CLIENT_MAC})
        with host.entered():
            _set("net/ipv4/tcp_syncookies", "2")
            with NetlinkSocket() as netlink:
                netlink.send(host_requests(socket.if_nametoindex(HOST_END), egress_fd, ingress_fd, HOST_END))
        application = last.enter_context(closing(Node(Listener().serve, host)))
        application.order(listens=True)
        folder = last.enter_context(tempfile.TemporaryDirectory(prefix="syn-storm-"))
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) < 2:
            raise SetupError("one processor: the storm and the owner's act need one each")
        own, other = allowed[0], allowed[-1]
        file = Path(folder) / "storm"
        with outside.network.entered():
            process = subprocess.Popen(
                [program, file, STORM_END, HOST_MAC, SYN_SOURCE, HOST_ADDRESS, str(PORT)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SetupError(f"the storm did not start: {process.communicate()[1].strip()}")
        os.sched_setaffinity(process.pid, {other})
        with file.open("r+b") as opened:
            storm = SynStorm(process, mmap.mmap(opened.fileno(), _WORDS.size))
        last.callback(storm.close)
        os.sched_setaffinity(application.pid, {own})
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {own})
        last.callback(os.sched_setaffinity, 0, before)
        yield Arena(host, storm, application)


def _ready(network: NetworkNamespace, interface: str, address: str, neighbours: dict[str, str]) -> None:
    with network.entered(), contextlib.suppress(FileNotFoundError):  # no IPv6 here: nothing to switch off
        _set(f"net/ipv6/conf/{interface}/disable_ipv6", "1")
    lines = [f"addr add {address} dev {interface}", f"link set {interface} up"]
    lines += [f"neigh add {ip} lladdr {mac} dev {interface} nud permanent" for ip, mac in neighbours.items()]
    run_in(network, "ip", "-batch", "-", text="\n".join(lines))


def _set(setting: str, value: str) -> None:
    Path("/proc/sys", setting).write_text(value)
