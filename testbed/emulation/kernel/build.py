"""Making a planned campus in the kernel, and taking it down: namespaces, fabric, hosts, enforcement, read-back.

Order matters for speed. Loading BPF programs is the verifier's work, a third of all, so threads do it while another
makes namespaces and links. These threads come before whatever else wants the processors (on a busy machine that is half
of the time). All switch ends and cables go through one socket in the fabric; then a worker thread visits each host's
namespace. Taking down is one request that removes all cables as a batch, then the death of all holders. (One by one,
each cable would wait for the kernel's readers.) Bridges are left to the kernel: each costs it 15 ms (rcu_barrier), and
nothing can see them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from testbed import identity, linux
from testbed.emulation.description import link_requests, shaping
from testbed.emulation.description.plan import Cable, CableEnd, CampusPlan, host_mac
from testbed.emulation.kernel import attachment, readback
from testbed.emulation.kernel.delay_line.process import DelayLine
from testbed.emulation.kernel.fabric import BridgeFabric, disable_ipv6
from testbed.emulation.kernel.holders import Holders
from testbed.emulation.kernel.programs import HostEnforcement, PortEnforcement
from testbed.emulation.netlink import NetlinkRefused, NetlinkRequest, NetlinkSocket
from testbed.emulation.safety.ledger import MARK, Ledger
from testbed.errors import KernelMismatch
from testbed.linux import setns
from topologies.spec import SUBNET, Host

T = TypeVar("T")
HURRIED_NICE = -15  # of threads that build: some thirty times the share of another process, for seconds


@dataclass(slots=True)
class Phases:
    """Seconds spent in each phase of bring-up or take-down."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of the block to a phase."""
        begin_s = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin_s


def hurry() -> None:
    """Put the calling thread before other processes, where root may."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, HURRIED_NICE)


def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread of its own, and before other processes.

    It may change its network namespace, and the caller's stays as it is. It starts no process, which would go on in
    this hurry.

    When the interpreter ends there are no new threads: then it runs here, and the caller's namespace is entered again.
    """
    with ThreadPoolExecutor(1, initializer=hurry) as pool:
        try:
            future = pool.submit(work)
        except RuntimeError:
            own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                return work()
            finally:
                setns(own)
                os.close(own)
        return future.result()


class KernelCampus:
    """The kernel's side of one campus. `build` once, `tear_down` as often as one likes."""

    def __init__(
        self,
        plan: CampusPlan,
        fabric: BridgeFabric,
        enforcement: HostEnforcement | None,
        ports: PortEnforcement | None,
        *,
        line: DelayLine,
    ) -> None:
        self.plan = plan
        self.phases = Phases()
        self.holder_pids: dict[str, int] = {}
        self.fabric_pid = 0
        self._fabric, self._enforcement, self._ports = fabric, enforcement, ports
        self._holders: Holders | None = None
        self.line = line
        self._ledger: Ledger | None = None

    def build(self, ledger: Ledger, campus_id: str, check: Callable[[], None]) -> None:
        """Make everything and read it back; `check` is called between the phases.

        SetupError, NetlinkRefused, KernelMismatch, or what `check` raises: then call `tear_down`.
        """
        hosts, self._ledger = list(self.plan.host_cables), ledger
        holders = self._holders = Holders(len(hosts) + 1, {MARK: campus_id})
        ledger.record(ledger.process(holders.pid, "holders"))
        with self._loading_programs():
            with self.phases.timed("fork"):
                pids = holders.wait_forked()
                names = ("", *hosts)  # the first is the switches'
                ledger.record(
                    *(
                        ledger.process(pid, "namespace") | {"namespace": name}
                        for pid, name in zip(pids, names, strict=True)
                    )
                )
                self.fabric_pid = pids[0]
                self.holder_pids = dict(zip(hosts, pids[1:], strict=True))
            with self.phases.timed("unshare"):
                holders.unshare()
            self._fabric.start(self.plan, self.fabric_pid, ledger)
            cut = [cable for cable in self.plan.cables if cable.is_cut]
            if cut:
                with self.phases.timed("delay_line"):
                    in_thread(partial(self._build_far_halves, cut, self.line.start(ledger)))
            check()
            in_thread(self._build_tunnels)
            in_thread(self._build_fabric)
            check()
            in_thread(self._build_hosts)
            if cut:
                check()
                with self.phases.timed("delay_line"):
                    self._join(cut)
            in_thread(self._build_switches)
        for phase in (self._finish_hosts, self._finish_fabric):
            check()
            in_thread(phase)

    @contextlib.contextmanager
    def _loading_programs(self) -> Iterator[None]:
        """Load every host's programs while the block runs, on all cores but its own; at its end wait for those still to come."""
        if not self._enforcement:
            yield
            return
        with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), "bpf-load", hurry) as loaders:
            loaded = [loaders.submit(self._ports.load)] if self._ports else []
            loaded += [loaders.submit(self._enforcement.load, name) for name in self.plan.guarded]
            try:
                yield
                with self.phases.timed("wait_for_bpf_load"):
                    for one in loaded:
                        one.result()
            finally:
                loaders.shutdown(cancel_futures=True)

    def _build_tunnels(self) -> None:
        """Build what leads to other machines: by its nature from this machine's own namespace."""
        if self.plan.tunnels:
            with NetlinkSocket() as socket, self.phases.timed("tunnels"):
                socket.send([link_requests.tunnel(each, self.fabric_pid) for each in self.plan.tunnels])

    def _build_fabric(self) -> None:
        linux.enter_network_of(self.fabric_pid)
        self._fabric.prepare()
        with NetlinkSocket() as socket:
            self._fabric.build(socket, self.plan, self.holder_pids, self.line.pid, self.phases.timed)

    def _build_far_halves(self, cut: Sequence[Cable], line_pid: int) -> None:
        """Build the half of cut cables between the delay line and end `b`.

        It is made from the line's side: a kernel before 6.15, asked from elsewhere, takes an interface of the same name
        or number that stands there for the one to be made.
        """
        linux.enter_network_of(line_pid)
        with NetlinkSocket() as socket:
            peers = [self.holder_pids.get(cable.b.node, self.fabric_pid) for cable in cut]
            socket.send([link_requests.cable(cable, None, pid) for cable, pid in zip(cut, peers, strict=True)])

    def _build_switches(self) -> None:
        linux.enter_network_of(self.fabric_pid)
        with NetlinkSocket() as socket:
            self._fabric.build_switches(socket, self.plan, self.phases.timed)

    def _build_hosts(self) -> None:
        for name, cable in self.plan.host_cables.items():
            host, end = self.plan.spec.host_by_name[name], cable.b
            linux.enter_network_of(self.holder_pids[name])
            batch = [
                link_requests.up(link_requests.LOOPBACK_IFINDEX, f"lo of {host.name}"),
                link_requests.address(end.ifindex, host.address, SUBNET.prefixlen, end.name),
                *shaping.requests(end.ifindex, end.shape, end.name),
                attachment.clsact(end.ifindex, end.name),
                link_requests.up(end.ifindex, end.name),
                *self._neighbours(host, end),
            ]
            with NetlinkSocket() as socket, self.phases.timed("host_ends"):
                disable_ipv6()
                socket.send(batch)

    def _neighbours(self, host: Host, end: CableEnd) -> list[NetlinkRequest]:
        """Return requests for what `host` is to know: the coordinator, or all others if it is that.

        Hosts that register at once would each ask all others for it, on one broadcast domain: of 1 000 the last
        registered twice as late. Where OpenFlow programs switches, hosts ask still: what those do with ARP is a thing
        that people come to see.
        """
        if self.plan.openflow:
            return []
        coordinator = self.plan.spec.coordinator
        others = self.plan.spec.hosts if host == coordinator else (coordinator,)
        known = [other for other in others if other != host]
        return [
            link_requests.neighbour(end.ifindex, other.address, host_mac(other.address), end.name) for other in known
        ]

    def _finish_hosts(self) -> None:
        for name, pid in self.holder_pids.items():
            linux.enter_network_of(pid)
            with NetlinkSocket() as socket:
                if self._enforcement and name in self.plan.guarded:
                    with self.phases.timed("bpf_attach"):
                        self._enforcement.attach(socket, name, self.plan.host_cables[name].b)
                with self.phases.timed("read_back"):
                    self._read_back_host(socket, name)

    def _read_back_host(self, socket: NetlinkSocket, name: str) -> None:
        end = self.plan.host_cables[name].b
        readback.check_ends(socket, {end.ifindex: end}, {})
        address = self.plan.spec.host_by_name[name].address
        readback.check_address(socket, end, address.packed, SUBNET.prefixlen)
        if self._enforcement and name in self.plan.guarded:
            self._enforcement.read_back(socket, name, end)

    def _finish_fabric(self) -> None:
        if self._ports:
            linux.enter_network_of(self.fabric_pid)
            with NetlinkSocket() as socket, self.phases.timed("bpf_attach"):
                self._ports.attach(socket)
        with self.phases.timed("read_back"):
            self.read_back_fabric()

    def _cut(self, cable: Cable) -> None:
        """Put a cable that stands through the delay line.

        Its end `a` moves into the line's namespace and faces `b` from there; another of its name and number takes its
        place. What is under way is lost, and `b` sees its carrier go and return.
        """
        assert self._ledger is not None
        line_pid, a = self.line.start(self._ledger), cable.a

        def in_fabric() -> None:
            linux.enter_network_of(self.fabric_pid)
            master = self.plan.bridges[a.node] if a.ifindex in self.plan.masters else None
            batch = [
                link_requests.move(a, line_pid),
                link_requests.cable(replace(cable, b=cable.inner_end), master, line_pid),
                *shaping.requests(a.ifindex, a.shape, a.name),
                link_requests.up(a.ifindex, a.name, a.is_up),
            ]
            with NetlinkSocket() as socket:
                socket.send(batch)
                if self._ports and cable.b.node in self.plan.host_cables:
                    self._ports.attach(socket, [cable.b.node])

        in_thread(in_fabric)
        self._join([cable])

    def _join(self, cut: Sequence[Cable]) -> None:
        """Bring the inner ends of cut cables up, and let the delay line pass frames between them."""

        def in_line() -> None:
            assert self.line.pid is not None
            linux.enter_network_of(self.line.pid)
            disable_ipv6()
            with NetlinkSocket() as socket:
                ends = [(i, c.name) for c in cut for i in (c.a.ifindex, c.inner_end.ifindex)]
                socket.send([link_requests.up(ifindex, name) for ifindex, name in ends])

        in_thread(in_line)
        for cable in cut:
            self.line.add(cable.name, cable.inner_end.ifindex, cable.a.ifindex)
            self.line.set(cable.name, 0, cable.a.shape)
            self.line.set(cable.name, 1, cable.b.shape)

    def change(self, cable: Cable) -> None:
        """Make a standing cable like `cable`, in place, and read it back.

        NetlinkRefused or KernelMismatch: it is neither the old nor the new one, and every later read-back reports so.
        """
        before = self.plan.cable_between(cable.a.node, cable.b.node)
        if cable.is_cut and not before.is_cut:
            before = before.through_line()
            with self._fabric.without_ports(self.plan, [before.a]):
                self._cut(before)
        host = cable.b.node
        for side, (old, new) in enumerate(((before.a, cable.a), (before.b, cable.b))):
            if new != old:
                in_thread(partial(self._change_end, old, new))
                if new.shape.by_line:
                    self.line.set(cable.name, side, new.shape)
        if host in self.plan.host_cables and before.b.shape != cable.b.shape:
            if self._ports:
                self._ports.change(host, cable.b.shape)
            if self._enforcement and host in self.plan.guarded:
                self._enforcement.change(host, cable.b.shape)
        self.plan = self.plan.with_cable(cable)

    def _change_end(self, old: CableEnd, new: CableEnd) -> None:
        linux.enter_network_of(self.holder_pids.get(new.node, self.fabric_pid))
        batch = []
        if new.shape != old.shape:
            batch += shaping.changes(new.ifindex, new.shape, new.name)
        if new.is_up != old.is_up:
            batch.append(link_requests.up(new.ifindex, new.name, new.is_up))
            if new.is_up and (host := self.plan.spec.host_by_name.get(new.node)):
                batch += self._neighbours(host, new)  # the kernel forgot them with the link
        with NetlinkSocket() as socket:
            socket.send(batch)
            readback.check_ends(socket, {new.ifindex: new}, self._fabric.masters(self.plan))

    def read_back_fabric(self) -> None:
        """Raise KernelMismatch if a switch end is not as planned; changes the calling thread's namespace."""
        cut = [cable for cable in self.plan.cables if cable.is_cut]
        if cut and self.line.pid is None:
            raise KernelMismatch("delay line", "a running process", "none")
        linux.enter_network_of(self.fabric_pid)
        with NetlinkSocket() as socket:
            self._fabric.read_back(socket, self.plan)
            if self._ports:
                self._ports.read_back(socket)
        for cable in cut:
            self.line.check(cable.name, 0, cable.a.shape)
            self.line.check(cable.name, 1, cable.b.shape)

    def read_back_hosts(self) -> None:
        """Raise KernelMismatch if a host end is not as planned; changes the calling thread's namespace."""
        for name, pid in self.holder_pids.items():
            linux.enter_network_of(pid)
            with NetlinkSocket() as socket:
                self._read_back_host(socket, name)

    def class_counters(self, end: CableEnd) -> dict[int, shaping.QueueCounters]:
        """Return the counters of an end's classes; changes the calling thread's namespace."""
        linux.enter_network_of(self.holder_pids.get(end.node, self.fabric_pid))
        with NetlinkSocket() as socket:
            dump = socket.dump(shaping.RTM_GETTCLASS, shaping.tc_dump(end.ifindex), f"classes of {end.name}")
            return shaping.counters(dump)

    def namespace_inodes(self) -> set[int]:
        """Return the numbers of the campus's namespaces that stand."""
        pids = [self.fabric_pid, *self.holder_pids.values()] if self.fabric_pid else []
        inodes = {linux.network_inode(pid) for pid in pids}
        return {inode for inode in inodes if inode is not None} - {linux.network_inode()}

    def tear_down(self) -> None:
        """Remove all cables, then end the holders; safe to repeat.

        What is left of the namespaces (bridges without ports) the kernel removes in the background; nothing can see
        them any more.
        """
        try:
            if self._holders and identity.start_time(self.fabric_pid) is not None:
                with self.phases.timed("cables_gone"):
                    in_thread(self._remove_cables)
        finally:
            with self.phases.timed("kill"):
                self._fabric.close()
                self.line.close()
                if self._holders:
                    self._holders.close()
            self._holders = None
            self.holder_pids, self.fabric_pid = {}, 0

    def _remove_cables(self) -> None:
        own = linux.network_inode()
        linux.enter_network_of(self.fabric_pid)
        if linux.network_inode() == own:
            return  # the holder had not unshared yet: there are no cables
        for pid in (self.fabric_pid, self.line.pid):  # ends that the delay line was given are in its namespace
            if pid is not None:
                linux.enter_network_of(pid)
                with NetlinkSocket() as socket:
                    try:
                        socket.send([link_requests.remove_cables()])
                    except NetlinkRefused as error:
                        if error.errno != errno.ENODEV:  # none were made yet
                            raise


def pids_in(inodes: set[int], known: Mapping[int, object]) -> list[int]:
    """Return processes whose network is one of these namespaces, except those known."""
    return [pid for pid in identity.pids() if pid not in known and linux.network_inode(pid) in inodes]
