"""Switches that can be programmed: Open vSwitch, one ovsdb-server and one ovs-vswitchd a campus, in the fabric's namespace.

Cables stay kernel veths with their shapers, so rates, read-back and enforcement are what they are with bridges; Open
vSwitch only forwards. The kernel's datapath is used where the kernel has it (asked for by name, it loads its module).
Elsewhere the userspace one takes frames from the veths by packet sockets. With `userspace-tso-enable` super-packets
pass whole there (some 7 Gbit/s through one switch, .4 without); the option must be in the database before the first
port is opened. A packet socket receives frames before tc does. So a host's port, whose tc program holds addresses and
rates, is never a port of Open vSwitch: hosts hang on a kernel bridge beside it (`plan`).

All that the daemon sends goes through one packet socket, which counts what waits in the queues of all ports. At the
system's 208 KiB it is full with three super-packets of research on one trunk. Whatever comes then is lost, a
migration's packets on another trunk too. So it is given room, and so are the sockets that receive from ports
(`_give_room`).

All processes carry the campus's mark and die with the process that builds it; one that ends by itself is started again.
Sockets, database and logs are in the campus's run directory. `fail_mode=secure`: without a controller a switch goes on
with the tables that it has.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from testbed.emulation.description import link_requests
from testbed.emulation.description.openflow import topology_of
from testbed.emulation.description.plan import CableEnd, CampusPlan
from testbed.emulation.kernel import readback
from testbed.emulation.kernel.fabric import BridgeFabric, Timed
from testbed.emulation.netlink import NetlinkRefused, NetlinkSocket, request, text
from testbed.emulation.safety.ledger import MARK, Ledger
from testbed.errors import CommandFailed, KernelMismatch, SetupError
from testbed.linux import find_program, packet_sockets
from testbed.logs import logger
from testbed.own_programs import own_program
from topologies.decoding import UNDECODABLE
from topologies.openflow import Drained, HaveDrained

log = logger("reclaimnet.emulation")
Client = socket.socket

PROGRAMS = ("ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovsdb-tool", "ovs-ofctl")
# of 127.0.0.1 in the fabric's namespace; IANA's number for OpenFlow
CONTROLLER = "tcp:127.0.0.1:6653"
# vswitchd opens 50 ports in .2 s, a controller programs 300 switches in some seconds; ten times that on a busy machine
START_LIMIT_S = 60.0
# without a QoS record Open vSwitch removes every qdisc that it finds: this one means "leave them alone"
LEFT_ALONE = ("--id=@shaped", "create", "qos", "type=linux-noop")
# generic netlink: asking its controller for a family by name
NETLINK_GENERIC, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME = 16, 16, 3, 2
GENERIC_MESSAGE = struct.Struct("=BBH")  # genlmsghdr: command, version, reserved
# whence the userspace datapath has the interface that each of its switches gets (a tap device)
TUN = Path("/dev/net/tun")
# a coordinator plans around a trunk, switches are programmed again and, on a busy machine late, look through their caches
ANSWER_LIMIT_S = 20.0
# the interface to which all ports of the kernel's datapath belong
KERNEL_DATAPATH = "ovs-system"
# between two looks whether a daemon has ended, and two starts of one that ends at once
KEEP_S, AGAIN_S = 0.1, 1.0
# the longest wait of a switch between two tries to reach its controller
MAX_BACKOFF_MS = 1000
# What may wait in queues of all ports together: those have limits of their own, of some megabytes each.
SENT_BYTES = 256 << 20
# What may wait for the daemon at a port (docs/design-decisions.md). The slowest of eight connections over one trunk of 2.5 Gbit/s
# has 3 Mbit/s with the system's 208 KiB: with 512 it has 70, with 1 MiB 158, with 2 167 and with 4 166.
HEARD_BYTES = 2 << 20
# What the switch daemon's caches may hold: frames to made-up addresses are a flow each. A change of ways waits while all flows
# are seen, twice: 70 000 take 2 s, where a coordinator waits for one. Open vSwitch begins with 10 000, and allows 200 000 in
# the end. Flows of honest hosts are those to their peers, at each switch of the way.
MIN_FLOWS, FLOWS_PER_HOST = 10_000, 64
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33  # the kernel doubles what is asked for
# to no receiver, of a type that is for local experiments: the first frame that is sent opens the socket for all
FIRST_FRAME = "02000000000002000000000188b5".ljust(120, "0")


def kernel_datapath() -> bool:
    """Return True if the kernel has Open vSwitch's datapath. Asking for the family loads the module where that is possible."""
    family = text(CTRL_ATTR_FAMILY_NAME, "ovs_datapath")
    body = GENERIC_MESSAGE.pack(CTRL_CMD_GETFAMILY, 1, 0) + family
    try:
        with NetlinkSocket(NETLINK_GENERIC) as netlink:
            netlink.send([request(GENL_ID_CTRL, 0, body, "family ovs_datapath")])
    except (OSError, NetlinkRefused):
        return False
    return True


def missing_programs() -> list[str]:
    """Return the programs of Open vSwitch that are not installed."""
    return [program for program in PROGRAMS if find_program(program) is None]


class OpenvSwitchFabric(BridgeFabric):
    """Open vSwitch where a switch has several trunks, kernel bridges where hosts hang.

    `controller`: as ovs-vsctl takes it ("unix:PATH", "tcp:ADDRESS:PORT" inside the fabric's namespace); None: the campus's own,
    which is started and waited for.
    """

    def __init__(self, run_dir: Path, campus_id: str, controller: str | None = None) -> None:
        self.directory = run_dir / "openvswitch"
        self.events = run_dir / "openflow.jsonl"
        self._campus_id, self._remote = campus_id, controller
        self._fabric_pid = 0
        self._ledger: Ledger | None = None
        self.in_kernel = False  # whether the kernel forwards
        self._datapath_ifindex = 0
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # its one thread lives until `close`: with the thread that started them the daemons die
        self._starter = ThreadPoolExecutor(1, "openvswitch")
        self._started: Future[None] | None = None
        self._commands: dict[str, list[str]] = {}
        self._launched_s: dict[str, float] = {}
        self._restarts: list[str] = []
        self._roomy_pid = 0  # of the switch daemon whose sockets were given room
        self._ending, self._changing = threading.Event(), threading.Lock()

    @property
    def environment(self) -> dict[str, str]:
        """The environment with which Open vSwitch's programs find this campus's sockets."""
        folder = str(self.directory)
        return {"OVS_RUNDIR": folder, "OVS_LOGDIR": folder, "OVS_DBDIR": folder, MARK: self._campus_id}

    def start(self, plan: CampusPlan, fabric_pid: int, ledger: Ledger) -> None:
        """Begin to start controller, database and switch daemon in the namespace of `fabric_pid`.

        `build_switches` waits for them. SetupError: one is not installed.
        """
        self._fabric_pid, self._ledger = fabric_pid, ledger
        if not plan.openflow:
            return
        if missing := missing_programs():
            raise SetupError(f"the Open vSwitch fabric needs {', '.join(missing)}: apt install openvswitch-switch")
        self.in_kernel = kernel_datapath()
        if not self.in_kernel and not TUN.exists():
            raise SetupError(f"Open vSwitch in user space needs {TUN}, which is not there: modprobe tun")
        self.directory.mkdir(mode=0o700)
        if self._remote and self._remote.startswith("unix:"):  # switches take a socket of this directory only
            (link := self.directory / "another.sock").symlink_to(Path(self._remote.removeprefix("unix:")).absolute())
            self._remote = f"unix:{link}"
        self._started = self._starter.submit(self._start_daemons, plan)
        self._starter.submit(self._keep, plan)

    def _start_daemons(self, plan: CampusPlan) -> None:
        """Start controller, database, switch daemon, and the switches without their ports.

        That is all that needs nothing of the kernel part, which is built meanwhile. The daemon's first switch alone
        takes .1 s of sleep, in which it measures a clock.
        """
        self.start_controller(plan)  # first: it is the slowest to come up
        self._run("ovsdb-tool", "create", f"{self.directory}/conf.db")
        database = f"{self.directory}/db.sock"
        self._spawn("ovsdb-server", f"{self.directory}/conf.db", f"--remote=punix:{database}")
        self._wait(lambda: listens(database), "ovsdb-server", "its socket")
        super_packets = f"other_config:userspace-tso-enable={str(not self.in_kernel).lower()}"
        most_flows = f"other_config:flow-limit={flow_limit(plan)}"
        self._vsctl("--no-wait", "init", "--", "set", "Open_vSwitch", ".", super_packets, most_flows)
        self._spawn("ovs-vswitchd", f"unix:{database}")
        numbers, command = topology_of(plan).switches, list[str]()
        for switch in plan.openflow:
            command += ["--", "add-br", switch, "--", "set", "bridge", switch]
            command += [f"datapath_type={'system' if self.in_kernel else 'netdev'}", "fail_mode=secure"]
            command += ["protocols=OpenFlow13", "other_config:disable-in-band=true"]
            command += [f"other_config:datapath-id={numbers[switch]:016x}"]
        self._vsctl(*command)

    def _give_room(self, plan: CampusPlan) -> None:
        """Let the packet sockets of the switch daemon hold more: the one that it sends by, and those of its ports."""
        pid = self.pid("ovs-vswitchd")
        if self.in_kernel or pid is None:
            return
        switch, number = next(iter(_ports(plan).values()))
        first = ["in_port=controller", f"packet={FIRST_FRAME}", f"actions=output:{number}"]
        limit = f"--timeout={START_LIMIT_S:.0f}"
        bridge = f"unix:{self.directory}/{switch}.mgmt"
        self._run("ovs-ofctl", limit, "-O", "OpenFlow13", "packet-out", bridge, " ".join(first))
        for found in packet_sockets(pid):
            is_port = bool(found.getsockname()[0])
            option, room = (SO_RCVBUFFORCE, HEARD_BYTES) if is_port else (SO_SNDBUFFORCE, SENT_BYTES)
            found.setsockopt(socket.SOL_SOCKET, option, room // 2)
        self._roomy_pid = pid

    def _keep(self, plan: CampusPlan) -> None:
        """Start each daemon again that has ended, until `close`.

        Without its database the switch daemon forwards nothing in user space. Started again it has no rules until its
        controller has found it.
        """
        while not self._ending.wait(KEEP_S):
            try:
                with self._changing:
                    for name, process in list(self._processes.items()):
                        ended, since_s = process.poll() is not None, time.monotonic() - self._launched_s[name]
                        if ended and since_s > AGAIN_S:
                            log.warning("%s has ended (status %d): started again", name, process.returncode)
                            self._launch(name, self._commands[name])
                            self._restarts.append(name)
                if self._roomy_pid not in (0, self.pid("ovs-vswitchd")):
                    with contextlib.suppress(CommandFailed):  # it is not that far yet
                        self._give_room(plan)
            except OSError as error:  # no process or no file can be had, or the daemon ended meanwhile
                log.warning("the daemons of Open vSwitch are looked after again in %g s: %s", AGAIN_S, error)
                self._ending.wait(AGAIN_S)

    def build_switches(self, socket: NetlinkSocket, plan: CampusPlan, timed: Timed) -> None:
        """Add the ports of the OpenFlow switches and where their controller is, in one transaction.

        SetupError, CommandFailed or KernelMismatch: something that `start` began did not come up.
        """
        if not plan.openflow:
            return
        with timed("openvswitch"):
            made = [link_requests.up(link_requests.LOOPBACK_IFINDEX, "lo of the fabric")]
            for switch, edge in plan.openflow.items():
                if edge:
                    made.append(link_requests.cable(edge, plan.bridges[switch], None))
                    made += [link_requests.up(end.ifindex, end.name) for end in (edge.a, edge.b)]
            socket.send(made)
        with timed("wait_for_openvswitch"):
            assert self._started is not None
            self._started.result()
            if "controller" in self._processes:  # a switch that finds none there tries again after a second
                self._wait(self.socket.exists, "controller", "its socket")
        with timed("openvswitch"):
            command = list(LEFT_ALONE)
            for port, (switch, number) in _ports(plan).items():
                command += _add_port(port, switch, number)
            for switch in plan.openflow:
                command += ["--", "set-controller", switch, self._remote or CONTROLLER]
                command += ["--", "set", "controller", switch, f"max_backoff={MAX_BACKOFF_MS}"]
            self._vsctl(*command)
            self._give_room(plan)
            if self.in_kernel:
                links = readback.link_states(socket)
                self._datapath_ifindex = next((i for i, link in links.items() if link.name == KERNEL_DATAPATH), 0)

    def masters(self, plan: CampusPlan) -> Mapping[int, int]:
        """Return masters as with bridges; what Open vSwitch forwards in the kernel belongs to its datapath."""
        if not self.in_kernel:
            return super().masters(plan)
        ports = _ports(plan)
        ends = [*plan.fabric_ends.values(), *(edge.b for edge in plan.openflow.values() if edge)]
        own = {end.ifindex: self._datapath_ifindex for end in ends if end.name in ports}
        return {**super().masters(plan), **own}

    @contextlib.contextmanager
    def without_ports(self, plan: CampusPlan, ends: Sequence[CableEnd]) -> Iterator[None]:
        """Take ends out of their switches, put in new ones of the same names if there are any, and notify the controller."""
        ports = {end.name: _ports(plan)[end.name] for end in ends if end.name in _ports(plan)}
        if not ports:
            yield
            return
        self._vsctl(*(word for port in ports for word in ("--", "del-port", port)))
        yield
        added = [word for port, (switch, number) in ports.items() for word in _add_port(port, switch, number)]
        self._vsctl(*LEFT_ALONE, *added)
        self._give_room(plan)

    def start_controller(self, plan: CampusPlan) -> None:
        """Start the campus's own controller; `read_back` waits for it. Nothing, if it runs or another's was given."""
        if self._remote or not plan.openflow or "controller" in self._processes:
            return
        topology = self.directory / "topology.json"
        topology.write_bytes(msgspec.json.encode(topology_of(plan)))
        command = [*own_program("controller.openflow"), topology, "--listen", CONTROLLER.removeprefix("tcp:")]
        command += ["--events", self.events, "--socket", self.socket]
        command += ["--control", self.directory / "ovs-vswitchd.ctl"]
        self._launch("controller", [*map(str, command)])

    def stop_controller(self) -> None:
        """End the campus's own controller; the switches go on with their tables."""
        self._end("controller")

    @property
    def socket(self) -> Path:
        """Socket at which the campus's own controller takes routes (`topologies.openflow`)."""
        return self.directory / "controller.sock"

    @contextlib.contextmanager
    def drained(self, a: str, b: str) -> Iterator[None]:
        """Have whatever can leave the trunk leave it, without a packet lost; to be cut within the block, or it is used again.

        SetupError: the controller is another's, or does not answer; the two are no trunk.
        """
        with socket.socket(socket.AF_UNIX) as client:  # the order holds as long as the connection
            reason = "it is not ours" if self._remote else self._order_drained(client, HaveDrained(a, b))
            if reason:
                raise SetupError(f"the controller of the switches did not drain {a}-{b}: {reason}")
            yield

    def _order_drained(self, client: Client, order: HaveDrained) -> str:
        """Return why the campus's own controller did not do it; nothing if it did."""
        client.settimeout(ANSWER_LIMIT_S)
        try:
            client.connect(str(self.socket))
            client.sendall(msgspec.json.encode(order) + b"\n")
            with client.makefile("rb") as lines:
                return msgspec.json.decode(lines.readline(), type=Drained).reason
        except (OSError, *UNDECODABLE):
            return "it did not answer in time"

    @property
    def is_ours(self) -> bool:
        """True if the campus's own controller is in charge, and not another's."""
        return self._remote is None

    @property
    def restarts(self) -> list[str]:
        """Daemons that ended and were started again, in the order in which they were."""
        return list(self._restarts)

    def pid(self, name: str) -> int | None:
        """Return the process number of "ovsdb-server", "ovs-vswitchd" or "controller" while it runs."""
        process = self._processes.get(name)
        return process.pid if process and process.poll() is None else None

    def read_events(self) -> list[dict[str, Any]]:
        """Return the controller's events so far: "programmed", "trunk", "updated", "lost", "refused"."""
        try:
            lines = self.events.read_text("utf-8").splitlines(keepends=True)
            return [json.loads(line) for line in lines if line[-1] == "\n"]
        except FileNotFoundError:
            return []

    def wait_programmed(self, after: int = 0) -> None:
        """Wait until the controller has reported, behind its first `after` events, that every switch has its tables.

        SetupError: it ended, or a switch refused a message. KernelMismatch: it has not reported so in time.
        """

        def programmed() -> bool:
            said = [e for e in self.read_events()[after:] if e["event"] in ("programmed", "refused")]
            if said and said[-1]["event"] == "refused":
                raise SetupError(f"an OpenFlow switch refused a message of the controller: {said[-1]}")
            return bool(said)

        self._wait(programmed, "controller", "programmed switches")

    def read_back(self, socket: NetlinkSocket, plan: CampusPlan) -> None:
        """Read back as with bridges, and that every port of Open vSwitch has its number, every switch its tables."""
        super().read_back(socket, plan)
        if not plan.openflow:
            return
        table = json.loads(self._vsctl("--format=json", "--columns=name,ofport,error", "list", "interface"))
        found = {name: (ofport, error) for name, ofport, error in table["data"]}
        nothing = ["set", []]
        for port, (_, number) in _ports(plan).items():
            if found.get(port) != (number, nothing):
                raise KernelMismatch(f"Open vSwitch port {port}", (number, "no error"), found.get(port))
        if not self._remote and "controller" in self._processes:
            self.wait_programmed()

    def close(self) -> None:
        """End every process; safe to repeat."""
        self._ending.set()
        self._starter.shutdown(cancel_futures=True)
        for name in list(self._processes)[::-1]:
            self._end(name)

    def _spawn(self, program: str, *arguments: str) -> None:
        log = f"--log-file={self.directory}/{program}.log"
        control = f"--unixctl={self.directory}/{program}.ctl"
        quiet = "--verbose=console:off"
        self._launch(program, [program, *arguments, log, control, quiet, "--no-chdir"])

    def _launch(self, name: str, command: list[str]) -> None:
        inside = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/proc/{self._fabric_pid}/ns/net", "--"]
        self._commands[name], self._launched_s[name] = command, time.monotonic()
        with (self.directory / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                [*inside, *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        if self._ledger:
            self._ledger.record(self._ledger.process(self._processes[name].pid, name))

    def _end(self, name: str) -> None:
        with self._changing:
            process = self._processes.pop(name, None)
        if process:
            process.kill()
            process.wait()

    def _wait(self, ready: Callable[[], bool], name: str, what: str) -> None:
        end_s = time.monotonic() + START_LIMIT_S
        while not ready():
            process = self._processes.get(name)
            if process is None or process.poll() is not None:
                said = (self.directory / f"{name}.out").read_text(errors="replace")[-2000:]
                raise SetupError(f"{name} of the Open vSwitch fabric ended without {what}: {said or 'it said nothing'}")
            if time.monotonic() > end_s:
                raise KernelMismatch(f"{name} of the Open vSwitch fabric", what, f"none in {START_LIMIT_S:.0f} s")
            time.sleep(0.01)

    def _vsctl(self, *arguments: str) -> str:
        return self._run(
            "ovs-vsctl", f"--db=unix:{self.directory}/db.sock", f"--timeout={START_LIMIT_S:.0f}", *arguments
        )

    def _run(self, *command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **self.environment})
        if done.returncode:
            raise CommandFailed(list(command), done.returncode, done.stderr)
        return done.stdout


def flow_limit(plan: CampusPlan) -> int:
    """Return the maximum number of flows in the switch daemon's caches, of all switches together."""
    return max(MIN_FLOWS, FLOWS_PER_HOST * len(plan.host_cables))


def listens(path: str) -> bool:
    """Return True if a UNIX socket accepts a connection: its file exists a moment before."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0


def _add_port(port: str, switch: str, number: int) -> list[str]:
    """Return the words of a transaction that begins with LEFT_ALONE."""
    return [
        "--", "add-port", switch, port,
        "--", "set", "interface", port, f"ofport_request={number}",
        "--", "set", "port", port, "qos=@shaped",
    ]  # fmt: skip


def _ports(plan: CampusPlan) -> dict[str, tuple[str, int]]:
    """Return interface -> (switch, port number), of every port of Open vSwitch."""
    ends = [end for trunk in plan.trunks for end in (trunk.a, trunk.b) if end.node in plan.openflow]
    ports = {end.name: (end.node, end.port) for end in ends}
    return ports | {edge.b.name: (switch, edge.b.port) for switch, edge in plan.openflow.items() if edge}
