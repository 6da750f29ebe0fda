"""The live campus: Mininet's network object, built from a description at netlink speed.

    with LiveCampus(campus54()) as net:
        net.pingAll()
        agent = net.fork("a1", main, label="agent")

`start()` makes everything and reads it back; `stop()` removes everything and waits until the kernel has. Both belong in the
main thread. SIGINT, SIGTERM and SIGHUP at any moment leave nothing behind (`interruption`); whatever else kills this process, its
namespaces die with it, and `cleaning.clean_up` removes the rest.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import resource
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mininet.log import output
from mininet.net import Mininet
from mininet.topo import Topo

from testbed import control_groups, identity
from testbed.emulation import processes
from testbed.emulation.capabilities import explain_failure, require_before_start
from testbed.emulation.description.plan import Cable, CableEnd, CampusPlan, plan
from testbed.emulation.description.shaping import QueueCounters
from testbed.emulation.kernel.build import KernelCampus, in_thread, pids_in
from testbed.emulation.kernel.delay_line.process import DelayLine
from testbed.emulation.kernel.fabric import BridgeFabric
from testbed.emulation.kernel.openvswitch import OpenvSwitchFabric
from testbed.emulation.kernel.programs import HostEnforcement, PortEnforcement
from testbed.emulation.nodes import FIXED, BridgeSwitch, CampusHost, CampusLink, OpenFlowSwitch
from testbed.emulation.processes import ForkedProcess, ForkRequest, Target
from testbed.emulation.safety.cleaning import CleanReport, remove_listed, remove_tree
from testbed.emulation.safety.interruption import end_by_exit, signals_held
from testbed.emulation.safety.ledger import PIN_ROOT, Ledger, read_entries
from testbed.emulation.safety.living import default_root
from testbed.emulation.safety.settings import raise_settings
from testbed.errors import CommandFailed, SetupError, SpecError, TestbedError
from topologies import from_mininet, load
from topologies import spec as description
from topologies.addresses import endpoint
from topologies.dimension import Dimension
from topologies.units import format_rate

if TYPE_CHECKING:
    from bpf.maps import HostMaps
    from bpf.ports import PortCounters

KILL_ROUNDS = 100  # of processes inside hosts: a program that forks may escape one round
# of a link that is changed: a class takes a packet a second at least; the BPF buckets' arithmetic ends above
MIN_RATE_BYTES_PER_S, MAX_RATE_BYTES_PER_S = 1_000.0, 12.5e9
MAX_DELAY_S = 10.0
IMPAIRMENTS = {"delay", "loss", "jitter"}
DESCRIPTORS_A_HOST = 4  # two programs until they are attached; pidfds of what is forked


def _refused(kind: str, why: str = FIXED) -> Callable[..., None]:
    """Return a method that raises SetupError, for what the description alone decides."""

    def refuse(_: Any, *given: Any, **__: Any) -> None:
        raise SetupError(f"{kind} {'-'.join(map(str, given))}: {why}")

    return refuse


class LiveCampus(Mininet):  # type: ignore[misc]
    """A running (after `start`) campus of a description, of what `topologies.load` takes, or of a Mininet `Topo`.

    - `enforcement` attaches the BPF programs to every host and every host's port. With it a host can send by its planned
      addresses only.
    - `hold_migrations` False lets the testbed's own classes take more than the migration share of a host's port (a baseline).
    - With `one_queue` interfaces do not separate the testbed's own classes from research (a baseline, too).
    - `borrows`: whether checkpoints have a queue of their own.
    - `controller` programs an Open vSwitch fabric instead of the campus's own ("unix:PATH", or "tcp:ADDRESS:PORT" inside the
      fabric's namespace).
    - `cut` names links (their two nodes) that will get delay or loss: they go through the delay line from the start.
    - `machine` names the part that is built here, of a campus with `[machines]`.
    - `root` is where ledgers and run directories are (default /run/reclaimnet).

    Raises SetupError on start if the machine lacks what the description needs.
    """

    @signals_held()  # for it imports: an interrupt in a callback of importlib's would be lost
    def __init__(
        self,
        spec: description.Campus | Topo | Path | str | None = None,
        *,
        enforcement: bool = True,
        hold_migrations: bool = True,
        one_queue: bool = False,
        borrows: bool = True,
        controller: str | None = None,
        cut: Collection[tuple[str, ...]] = (),
        machine: str | None = None,
        root: Path | None = None,
        **mininets: Any,
    ) -> None:
        if refused := sorted(mininets):
            raise SpecError(
                "Campus", refused, "no such argument: Campus(TOPO) is all that a campus is made from (docs/mininet.md)"
            )
        self.spec = spec = _description_of(spec)
        self.id = f"{os.getpid():x}{secrets.token_hex(4)}"
        planned = plan(spec, one_queue=one_queue, borrows=borrows)
        if machine is None and spec.machines:
            raise SetupError(
                f"{spec.name} stands on {len(spec.machines)} machines: use --dask, or name the one whose part is built here"
            )
        self._described = planned = planned if machine is None else planned.part(machine)
        if controller is not None and not isinstance(controller, str):
            raise SetupError(
                "controller: a text such as tcp:127.0.0.1:6653 for a running one, not a class of Mininet's"
            )
        kind, _, place = (controller or "unix:/").partition(":")
        try:
            known = place if kind == "unix" else kind in ("tcp", "ssl") and endpoint(place)
        except ValueError:
            known = ""
        if not known:
            raise SetupError(f"controller {controller}: allowed are tcp:ADDRESS:PORT, ssl:ADDRESS:PORT, unix:PATH")
        if controller and not planned.openflow:
            raise SetupError(f"controller {controller}: this campus has no switch that OpenFlow could program")
        self.enforcement = enforcement
        self.forked: list[ForkedProcess] = []
        self._root = root or Path(default_root())
        self.run_dir = self._root / self.id
        self.pin_dir = PIN_ROOT / self.id
        self._ledger: Ledger | None = None
        self._directories: list[Path] = []  # that `make_directory` made
        self._removers: list[threading.Thread] = []
        self._put_signals_back: Callable[[], None] = lambda: None
        self._owner_pid = os.getpid()
        self._programs: HostEnforcement | None = None
        self._ports: PortEnforcement | None = None
        if enforcement:
            self._programs = HostEnforcement(self.pin_dir, spec.coordinator.address)
            self._ports = PortEnforcement(planned, hold_migrations=hold_migrations)
        self.openflow = OpenvSwitchFabric(self.run_dir, self.id, controller) if planned.openflow else None
        fabric = self.openflow or BridgeFabric()
        self._changes, self._cut = threading.Lock(), cut
        line = DelayLine(self.run_dir, self.id)
        self._kernel = KernelCampus(planned, fabric, self._programs, self._ports, line=line)
        # Mininet's first network raises a dozen machine-wide limits and never puts them back, unless it believes that it has
        before, Mininet.inited = Mininet.inited, True
        try:
            super().__init__(
                topo=None, host=CampusHost, switch=BridgeSwitch, link=CampusLink, controller=None, build=False
            )
        finally:
            Mininet.inited = before
        self.build()

    # Mininet's interface

    def build(self) -> None:
        """Make Mininet's nodes and links from the plan; touches no kernel object."""
        if self.hosts:
            return
        for name in self.plan.host_cables:
            self._adopt(self.hosts, self.host(name))
        for number, name in enumerate(self.spec.switch_by_name, start=1):
            if name not in self.plan.bridges and name not in self.plan.openflow:
                continue  # on another machine
            programmed = self.openflow is not None and name in self.plan.openflow
            switch = (OpenFlowSwitch if programmed else BridgeSwitch)(name, dpid=f"{number:x}")
            if self.openflow:
                switch.environment = self.openflow.environment
            self._adopt(self.switches, switch)
        for cable in self.plan.cables:
            link = self.link(self._side(cable.a), self._side(cable.b), description.SUBNET.prefixlen)
            link.change = self._change_interface
            self.links.append(link)
        self.built = True

    def _adopt(self, group: list[Any], node: Any) -> None:
        node.campus_id = self.id
        node.on_started = self._record_program
        group.append(node)
        self.nameToNode[node.name] = node

    def _side(self, end: CableEnd) -> tuple[CableEnd, Any, str | None]:
        host = self.spec.host_by_name.get(end.node)
        return end, self.nameToNode[end.node], str(host.address) if host else None

    runCpuLimitTest = _refused("CPU limit", "it reads a cgroup that is not the host's; setCPUFrac limits one")  # noqa: N815
    # the description alone adds and removes; `configLinkStatus(a, b, "down")` cuts a link for a while
    addHost = delNode = _refused("node")  # noqa: N815 - Mininet's names
    addSwitch = _refused("switch")  # noqa: N815
    addLink = delLink = _refused("link")  # noqa: N815
    addController = _refused(  # noqa: N815
        "controller", "the bridges of a campus forward without an OpenFlow controller"
    )

    def start(self) -> None:
        """Make the campus in the kernel, and read every setting back.

        SetupError (the machine), NetlinkRefused (a request) or KernelMismatch (a difference); nothing remains after any of them,
        nor after a signal. From here until `stop`, SIGTERM and SIGHUP raise SystemExit where they would have killed.
        """
        if self._ledger:
            raise SetupError(f"campus {self.id} is already running")
        self._choose_plan()
        self._put_signals_back = end_by_exit()
        atexit.register(self.stop)  # an interrupt may strike on the way to `stop`
        try:
            with signals_held() as check:
                try:
                    self._begin(check)
                    check()
                except BaseException:
                    self.stop()
                    raise
        except BaseException as error:
            self.stop()
            if isinstance(error, TestbedError):
                explain_failure(self.plan, enforcement=self.enforcement)
            raise

    @signals_held()  # for it imports
    def _choose_plan(self) -> None:
        """Choose the plan that realises the description on this machine. SetupError: there is none."""
        self._kernel.plan = self._described
        for a, b in self._cut:
            self._kernel.plan = self.plan.with_cable(self.plan.cable_between(a, b).through_line())
        require_before_start(self.plan)

    def _begin(self, check: Callable[[], None]) -> None:
        wanted = DESCRIPTORS_A_HOST * len(self.spec.hosts) + 1024
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < wanted:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
            except (ValueError, OSError) as error:
                raise SetupError(
                    f"a campus of this size needs {wanted} descriptors, the limit is {hard}: ulimit -n {wanted}"
                ) from error
        self._ledger = Ledger(
            self._root,
            self.id,
            name=self.spec.name,
            run_dir=str(self.run_dir),
            pin_dir=str(self.pin_dir),
            hosts=list(self.plan.host_cables),
            volunteers=[
                host.name for host in self.spec.hosts_of(description.Role.VOLUNTEER) if host.name in self.plan.guarded
            ],
        )
        self._ledger.record({"kind": "directory", "path": str(self.run_dir)})
        self.run_dir.mkdir(mode=0o755)
        self.run_dir.chmod(0o755)
        groups = control_groups.folders(f"{control_groups.TOP}/{self.id}")
        self._ledger.record(*({"kind": "limits", "path": str(path)} for path in groups))
        raise_settings(self._ledger)
        if self.enforcement:
            from bpf.objects import ensure_bpffs

            ensure_bpffs()
            self._ledger.record({"kind": "pins", "path": str(self.pin_dir)})
            for directory in (PIN_ROOT, self.pin_dir):
                directory.mkdir(mode=0o755, exist_ok=True)
        self._kernel.build(self._ledger, self.id, check)
        for node in (*self.hosts, *self.switches):
            node.pid = self._kernel.holder_pids.get(node.name, self._kernel.fabric_pid)
        with self._kernel.phases.timed("limit"):
            for node in self.hosts:
                if (limits := self.spec.host_by_name[node.name].limits) != description.UNLIMITED:
                    node.limit(limits)

    def stop(self) -> None:
        """End every process of the campus and remove every object; safe to repeat, and after a failed start.

        Does nothing in a forked child: the campus belongs to the process that made it. A signal that arrives meanwhile is
        delivered when all is gone.
        """
        if os.getpid() != self._owner_pid:
            return
        with signals_held():
            if self._ledger:
                report = CleanReport()
                with contextlib.ExitStack() as last:  # each step happens even if an earlier one fails
                    last.callback(self._remove_listed, self._ledger, report)
                    if self._programs and self._ports:
                        last.callback(self._programs.close)
                        last.callback(self._ports.close)
                    last.callback(self._kernel.tear_down)
                    last.callback(self._end_programs)
                    last.callback(self._begin_removing)
                    if self.openflow:  # before: it starts its daemons again when they end
                        last.callback(self.openflow.close)
                    for node in (*self.hosts, *self.switches):
                        last.callback(node.vanish)
                    last.callback(self._end_forked)
                if report.failed:
                    raise SetupError(f"campus {self.id} is stopped, but these remain: {'; '.join(report.failed)}")
        atexit.unregister(self.stop)
        self._put_signals_back()

    def _end_forked(self) -> None:
        with self._kernel.phases.timed("end_agents"):
            for process in self.forked:
                process.kill()
            for process in self.forked:
                process.wait()
                process.close()
            self.forked.clear()

    def _end_programs(self) -> None:
        """Kill all processes in the campus's namespaces but the holders: commands of shells, and what they started."""
        with self._kernel.phases.timed("end_programs"):
            inodes = self._kernel.namespace_inodes()
            known = dict.fromkeys([self._kernel.fabric_pid, *self._kernel.holder_pids.values()])
            for _ in range(KILL_ROUNDS):
                left = [(pid, identity.start_time(pid)) for pid in pids_in(inodes, known)]
                if not left:
                    return
                for pid, started in left:
                    if started is not None:
                        identity.kill_exactly(pid, started)
                time.sleep(0.005)

    def _begin_removing(self) -> None:
        """Remove the files of the campus's processes while its cables go; `_remove_listed` waits, and removes the rest."""
        with contextlib.suppress(RuntimeError):  # the interpreter ends, and begins no threads
            for directory in self._directories:
                remover = threading.Thread(target=_remove_what_goes, args=(directory,))
                remover.start()
                self._removers.append(remover)

    def _remove_listed(self, ledger: Ledger, report: CleanReport) -> None:
        ledger.close()
        self._ledger = None
        with self._kernel.phases.timed("remove_files"):
            for remover in self._removers:
                remover.join()
            self._removers, self._directories = [], []
            remove_listed(ledger.path, read_entries(ledger.path), report)

    def __enter__(self) -> LiveCampus:
        try:
            self.start()
            return self
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def iperf(
        self,
        hosts: Sequence[Any] | None = None,
        l4Type: str = "TCP",  # noqa: N803 - Mininet\'s
        udpBw: str = "10M",  # noqa: N803 - Mininet\'s
        fmt: str | None = None,
        seconds: float = 5,
        port: int = 5001,
    ) -> list[str]:
        """Print and return [server's, client's] rate as Mininet's iperf does; what it ends before is the server's iperf alone."""
        client, server = hosts or [self.hosts[0], self.hosts[-1]]
        if l4Type not in ("TCP", "UDP"):
            raise SpecError("iperf.l4Type", l4Type, "TCP or UDP")
        output("*** Iperf: testing", l4Type, "bandwidth between", client, "and", server, "\n")
        named = f"-x --ns {server.pid} --nslist net iperf"
        server.popen(["sh", "-c", f"while pkill -KILL {named}; do sleep 0.01; done"]).wait()
        common = ["iperf", "-p", str(port), *(["-u"] if l4Type == "UDP" else []), *(["-f", fmt] if fmt else [])]
        bandwidth = ["-b", udpBw] if l4Type == "UDP" else []
        listener = server.popen([*common, "-s"], text=True)
        try:
            _wait_listening(server, port, l4Type)
            run = client.popen([*common, "-t", str(seconds), "-c", server.IP(), *bandwidth], text=True)
            client_text, client_errors = run.communicate()
        finally:
            listener.terminate()
            server_text, _ = listener.communicate()
        if run.returncode:
            raise CommandFailed(common, run.returncode, client_errors)
        results = [self._parseIperf(server_text), self._parseIperf(client_text)]
        results = [udpBw, *results] if l4Type == "UDP" else results
        output(f"*** Results: {results}\n")
        return results

    # the testbed's own

    @property
    def running(self) -> bool:
        """True between start and stop."""
        return self._ledger is not None

    @property
    def phases_s(self) -> dict[str, float]:
        """Seconds spent in each phase of start and stop so far."""
        return dict(self._kernel.phases.seconds)

    @property
    def kernel(self) -> KernelCampus:
        """Namespaces of the campus, for read-back while it runs."""
        return self._kernel

    @property
    def plan(self) -> CampusPlan:
        """Every object of the campus as it is to be now: as described, and as `set_link` has changed it."""
        return self._kernel.plan

    def set_link(
        self,
        a: str,
        b: str,
        *,
        rate: float | str | None = None,
        delay: float | str | None = None,
        loss: float | None = None,
        jitter: float | str | None = None,
        up: bool | None = None,
        drain: bool = False,
    ) -> None:
        """Change the link of two nodes in place, in both directions, and read it back; what is not named stays as it is.

        `rate`: bytes/s on the wire, or text with its unit ("100 Mbit/s"); the research reserve and the limits of a host's
        port follow it. `delay` (one way), `jitter` (at most the delay): seconds, or text ("5 ms"). `loss`: a probability.
        A cable that had none of these is cut for the delay line: it carries nothing for some 20 ms. `up`: whether the cable
        carries anything. `drain`, with up=False: its trunk of a programmed network is left before, without a packet lost
        (`drained`). SpecError for a value or a node that cannot be, SetupError if the campus does not run, KernelMismatch if
        the kernel reports something else.
        """
        wanted = {"rate": rate, "delay": delay, "loss": loss, "jitter": jitter, "up": up}
        if not isinstance(up, bool | None):
            raise SpecError(f"links.{a}-{b}.up", up, "true or false")
        if drain and up is not False:
            raise SpecError(f"links.{a}-{b}.drain", drain, "with up=False only")
        with self.drained(a, b) if drain else contextlib.nullcontext():
            self._change(a, b, (a, b), {key: value for key, value in wanted.items() if value is not None})

    @contextlib.contextmanager
    def drained(self, a: str, b: str) -> Iterator[None]:
        """Lead packets round a trunk between two programmed switches while it still carries.

        If the block does not cut it, it is used again. SetupError: no such trunk, or the network's controller does not
        do it.
        """
        if self.openflow is None or not {a, b} <= self.plan.openflow.keys():
            raise SetupError(f"link {a}-{b} cannot be drained: it is no trunk of a programmed network")
        with self.openflow.drained(a, b):
            yield

    def _change_interface(self, interface: Any, **wanted: Any) -> None:
        """Change the shape of an interface's outgoing traffic, as `set_link`."""
        other = interface.link.intf2 if interface is interface.link.intf1 else interface.link.intf1
        source, target = interface.node.name, other.node.name
        self._change(source, target, (source,), wanted)

    def _change(self, a: str, b: str, sources: Sequence[str], wanted: Mapping[str, Any]) -> None:
        """Change what leaves these nodes through the cable between a and b."""
        if not self.running:
            raise SetupError(f"link {a}-{b}: start() the campus before it is changed")
        with self._changes:
            cable = self.plan.cable_between(a, b)
            if IMPAIRMENTS & wanted.keys():
                cable = cable.through_line()
            ends = [self._changed(cable, end, wanted) if end.node in sources else end for end in (cable.a, cable.b)]
            self._kernel.change(replace(cable, a=ends[0], b=ends[1]))

    def _changed(self, cable: Cable, end: CableEnd, wanted: Mapping[str, Any]) -> CableEnd:
        """Return the end with other properties; SpecError for one that cannot be."""
        key, shape = f"links.{cable.link.a}-{cable.link.b}", end.shape
        if "rate" in wanted:
            rate = _quantity(f"{key}.rate", Dimension.RATE, wanted["rate"])
            check_change(rate, None, key)
            shape = self.plan.shape_at(end, rate)
        shape = replace(
            shape,
            delay_s=_quantity(f"{key}.delay", Dimension.DURATION, wanted.get("delay", shape.delay_s)),
            loss=_quantity(f"{key}.loss", Dimension.NUMBER, wanted.get("loss", shape.loss)),
            jitter_s=_quantity(f"{key}.jitter", Dimension.DURATION, wanted.get("jitter", shape.jitter_s)),
        )
        replace(  # its own checks
            cable.link,
            rate_bytes_per_s=shape.rate_bytes_per_s,
            delay_s=shape.delay_s,
            loss=shape.loss,
            jitter_s=shape.jitter_s,
        )
        check_change(None, shape.delay_s, key)
        return replace(end, shape=shape, is_up=wanted.get("up", end.is_up))

    def maps(self, host: str) -> HostMaps:
        """Return the BPF maps of a host (flows, aggregate, counters, switch), for this process.

        A forked one opens the pins in `pin_dir`/HOST itself. SetupError if the campus has none.
        """
        if self._programs:
            with contextlib.suppress(KeyError):
                return self._programs.maps(host)
        raise SetupError(f"no BPF maps of {host!r}: not a host of a running campus with enforcement")

    def port_counters(self, host: str) -> PortCounters:
        """Return traffic that the switch took from the host over its cable, and dropped (bpf.ports). SetupError as `maps`."""
        if self._ports:
            with contextlib.suppress(KeyError, ValueError):
                return self._ports.counters(host)
        raise SetupError(f"no port program of {host!r}: not a host of a running campus with enforcement")

    def class_counters(self, a: str, b: str) -> dict[int, QueueCounters]:
        """Return counters of the classes (`shaping`) of node `a`'s end of the link to `b`. SpecError: there is no such link."""
        cable = self.plan.cable_between(a, b)
        end = cable.a if cable.a.node == a else cable.b
        return in_thread(partial(self._kernel.class_counters, end))

    def make_directory(self, base: Path) -> Path:
        """Make and return BASE/ID, removed with the campus: room for what its processes keep on disk."""
        if not self._ledger:
            raise SetupError("start() the campus before make_directory()")
        base.mkdir(parents=True, exist_ok=True)
        if base.lstat().st_uid not in (0, os.geteuid()):
            raise SetupError(f"{base} is another user's, who could put other files in place of the campus's: remove it")
        path = base / self.id
        self._ledger.record({"kind": "directory", "path": str(path)})
        path.mkdir(mode=0o700)
        self._directories.append(path)
        return path

    def fork(
        self, host_name: str, target: Target, *, label: str, log: Path | None = None, keep: Sequence[int] = ()
    ) -> ForkedProcess:
        """Run `target` in a process forked from this one, inside the host's network.

        Its host's limits hold for it. See `processes` for what the child inherits; descriptors other than 0, 1, 2 and `keep` are
        closed; with `log` output goes to that file.
        """
        group = getattr(self.nameToNode.get(host_name), "group", ())
        return self.fork_all([ForkRequest(host_name, target, label, log, tuple(keep), group)])[0]

    def fork_all(self, requests: Sequence[ForkRequest]) -> list[ForkedProcess]:
        """Fork many at once, with one write to the ledger."""
        if not self._ledger:
            raise SetupError("start() the campus before fork()")
        holder_pids = self._kernel.holder_pids
        for request in requests:
            if request.host not in holder_pids:
                raise SetupError(f"no host is called {request.host!r}")
        with signals_held():  # an interrupt inside os.fork's hooks would be lost
            made = processes.fork_all(requests, [holder_pids[r.host] for r in requests], self.id, self._ledger)
            self.forked += made
        return made

    def _record_program(self, program: subprocess.Popen[Any], label: str) -> None:
        if self._ledger:
            self._ledger.record(self._ledger.process(program.pid, f"program in {label}"))


def _description_of(spec: object) -> description.Campus:
    """Return the description of what a campus may be made from. SpecError: nothing of that, or a wrong one."""
    match spec:
        case description.Campus():
            return spec
        case Topo():
            return from_mininet(spec)
        case str() | Path():
            return load(spec)
    allowed = "a topologies.spec.Campus, what topologies.load takes, or a mininet.topo.Topo"
    raise SpecError("Campus", type(spec).__name__, allowed)


def check_change(rate_bytes_per_s: float | None, delay_s: float | None, key: str = "events") -> None:
    """Raise SpecError for a rate or a delay, as played, that a link of a live campus cannot be changed to."""
    if rate_bytes_per_s is not None and not MIN_RATE_BYTES_PER_S <= rate_bytes_per_s <= MAX_RATE_BYTES_PER_S:
        allowed = f"{format_rate(MIN_RATE_BYTES_PER_S)} to {format_rate(MAX_RATE_BYTES_PER_S)}"
        raise SpecError(f"{key}.rate", format_rate(rate_bytes_per_s), f"as played, {allowed}")
    if delay_s is not None and delay_s > MAX_DELAY_S:
        raise SpecError(f"{key}.delay", f"{delay_s:g} s", f"as played, at most {MAX_DELAY_S:.0f} s")


def _quantity(key: str, dimension: Dimension, value: float | str) -> float:
    """Return a quantity given as people write it, or as a number. SpecError for any other."""
    try:
        return dimension.units.parse(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError) as error:
        raise SpecError(key, value, f"{error}, or a number") from None


def _remove_what_goes(directory: Path) -> None:
    with contextlib.suppress(OSError):
        remove_tree(directory)


def _wait_listening(server: Any, port: int, transport: str) -> None:
    """Wait until the server's socket is bound: read its namespace's socket table, so that no probing connection disturbs it."""
    table = Path(f"/proc/{server.pid}/net/{transport.lower()}")
    wanted = re.compile(rf":{port:04X} 00000000:0000 0[7A] ")
    for _ in range(200):
        if wanted.search(table.read_text()):
            return
        time.sleep(0.02)
    raise SetupError(f"iperf on {server.name} does not listen on port {port}")
