"""The live campus through Mininet's interface: as described, with functions forked into its hosts, and gone without a trace."""

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import trio
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from testbed import identity
from testbed.emulation.campus import LiveCampus
from testbed.emulation.description import shaping
from testbed.emulation.kernel import holders, readback
from testbed.emulation.kernel.build import in_thread
from testbed.emulation.processes import ForkRequest
from testbed.errors import KernelMismatch, SetupError, SpecError
from tests.emulation_campuses import kernel, machine, raw_socket, read_back, small_campus
from topologies.units import GBIT_PER_S

pytestmark = [*kernel, pytest.mark.stock_kernel]


def test_every_host_reaches_every_other_and_nothing_is_created_in_the_root_namespace(campus: LiveCampus) -> None:
    assert campus.pingAll(timeout="2") == 0.0
    links = subprocess.run(["ip", "-br", "link"], check=True, capture_output=True, text=True).stdout
    assert "h1-eth0" not in links and "s1" not in links.split()
    assert "inet6" not in campus.get("h1").cmd("ip addr"), "IPv6 is off by default"


def test_commands_run_in_the_hosts_namespace_by_a_shell_and_without(
    campus: LiveCampus, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "10.0.1.2/8" in campus.get("h2").cmd("ip -br -4 addr show h2-eth0")
    assert "h1-eth0" not in campus.get("h2").cmd("ip link")
    out, _, status = campus.get("c0").pexec("ip", "-br", "link")
    assert status == 0 and "c0-eth0" in out
    monkeypatch.delenv("SHELL", raising=False)
    shown = campus.get("c0").popen("ip -br link | grep -c c0-eth0", shell=True, text=True)
    assert shown.communicate(timeout=30)[0].strip() == "1"


def test_a_host_and_the_coordinator_know_each_other_without_asking_the_campus(campus: LiveCampus) -> None:
    names = {host.IP(): host for host in campus.hosts}
    coordinator = names[str(campus.spec.coordinator.address)]
    for host in campus.hosts:
        known = {line.split()[0]: line for line in host.cmd("ip neigh show nud permanent").splitlines() if line}
        expected = names.keys() - {host.IP()} if host is coordinator else {coordinator.IP()}
        assert known.keys() == expected
        assert all(names[address].MAC() in line for address, line in known.items())


def test_rates_above_a_gigabit_are_really_set(campus: LiveCampus) -> None:
    trunk = campus.plan.trunks[0].b.name
    text = campus.get("h1").cmd("tc class show dev h1-eth0") + campus.get("s1").cmd(f"tc class show dev {trunk}")
    assert "rate 10Gbit ceil 10Gbit" in text and "rate 40Gbit ceil 40Gbit" in text


def test_changed_shaping_and_a_moved_port_are_noticed(campus: LiveCampus) -> None:
    rate = "tc class change dev h3-eth0 parent 1: classid 1:1 htb rate"
    port = campus.plan.host_cables["h1"].a
    for node, change, back, read_back_part, named in (
        ("h3", f"{rate} 9gbit", f"{rate} 10gbit burst 1250000 cburst 1250000", "hosts", "h3-eth0"),
        ("core", f"ip link set {port.name} nomaster", f"ip link set {port.name} master {port.node}", "fabric", port.name),
    ):  # fmt: skip
        compare = getattr(campus.kernel, f"read_back_{read_back_part}")
        try:
            campus.get(node).cmd(change)
            with pytest.raises(KernelMismatch, match=named):
                in_thread(compare)
        finally:
            campus.get(node).cmd(back)
        in_thread(compare)


def test_what_would_change_a_standing_campus_is_refused(campus: LiveCampus) -> None:
    host, link = campus["h1"], campus.links[0]
    changes = [
        lambda: campus.addHost("h99"),
        lambda: campus.addLink("h1", "h2"),
        lambda: campus.addNAT(),
        lambda: campus.delHost(host),
        lambda: campus.delSwitch(campus["s1"]),
        lambda: campus.delNode(host),
        lambda: campus.delLink(link),
        lambda: campus.delLinkBetween(host, campus["s1"]),
        lambda: host.intf().config(ip="10.0.9.9/8"),
        lambda: host.intf().delete(),
        lambda: host.setIP("10.0.9.9"),
        lambda: host.setMAC("02:00:00:00:00:09"),
    ]
    for change in changes:
        with pytest.raises(SetupError, match="description"):
            change()
    with pytest.raises(SetupError, match="without an OpenFlow controller"):
        campus.addController("c1")
    with pytest.raises(SetupError, match="h99"):
        campus.port_counters("h99")
    assert len(campus) == len(campus.hosts) + len(campus.switches) == len(list(campus)) == 7
    assert host.intf().config() == {} and host.IP() == "10.0.1.1"
    assert campus.ping([host, campus["h2"]], timeout="2") == 0.0


def test_link_that_was_cut_and_joined_carries_again(campus: LiveCampus) -> None:
    known = campus["h2"].cmd("ip neigh show nud permanent")
    assert known
    for cut in (
        lambda up: campus.configLinkStatus("h2", "s2", "up" if up else "down"),
        lambda up: campus.set_link("s2", "h2", up=up),
    ):
        cut(False)
        read_back(campus)
        assert campus.ping([campus["h1"], campus["h2"]], timeout="0.3") == 100.0
        cut(True)
        read_back(campus)
        assert campus.ping([campus["h1"], campus["h2"]], timeout="2") == 0.0
        assert campus["h2"].cmd("ip neigh show nud permanent") == known


def test_rate_changes_in_place_in_both_directions_or_one(campus: LiveCampus) -> None:
    host, switch, other = campus["h1"], campus["s1"], campus["h2"]
    # two hosts on two switches; a connection that stands while its link's rate changes twice goes on
    campus.set_link("h1", "s1", rate="80 Mbit/s")
    port = campus.plan.host_cables["h1"].a.name
    for node, name in ((host, "h1-eth0"), (switch, port)):
        assert "rate 80Mbit ceil 80Mbit" in node.cmd(f"tc class show dev {name} classid 1:1")
    read_back(campus)
    server, client = campus.iperf((host, other), seconds=1)
    assert client.endswith("Mbits/sec") and float(client.split()[0]) < 120
    value, unit = server.split()
    assert unit == "Mbits/sec" and 8.0 < float(value) <= 82.0
    host.intf().config(bw=40)
    assert "rate 40Mbit ceil 40Mbit" in host.cmd("tc class show dev h1-eth0 classid 1:1")
    assert "rate 80Mbit ceil 80Mbit" in switch.cmd(f"tc class show dev {port} classid 1:1")
    campus.set_link("s1", "h1", rate=10 * GBIT_PER_S)
    read_back(campus)
    _, client = campus.iperf((host, other), seconds=0.5)
    assert client.endswith("Gbits/sec") or float(client.split()[0]) > 120


def test_rate_that_the_kernel_does_not_have_is_noticed(campus: LiveCampus, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(shaping, "changes", lambda *_: [])
        with pytest.raises(KernelMismatch, match="shaping of s1-eth"):
            campus.set_link("h1", "s1", rate="1 Gbit/s")
    read_back(campus)


@pytest.mark.parametrize(
    ("a", "b", "change", "said"),
    [
        ("h1", "s2", {"rate": 1e6}, "a link of h1: to s1"),
        ("h1", "s9", {"rate": 1e6}, "the name of a host or a switch"),
        ("h1", "s1", {"rate": "fast"}, "100 Mbit/s"),
        ("h1", "s1", {"rate": 0}, "8 kbit/s to 100 Gbit/s"),
        ("h1", "s1", {"rate": float("nan")}, "8 kbit/s to 100 Gbit/s"),
    ],
)
def test_change_that_cannot_be_is_refused(
    campus: LiveCampus, a: str, b: str, change: dict[str, object], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        campus.set_link(a, b, **change)
    read_back(campus)


def test_host_whose_shell_is_killed_or_left_has_another_at_its_next_command(campus: LiveCampus) -> None:
    """A command that killed its shell was waited for, for ever."""
    host = campus["h1"]
    for end in ("echo last; kill -9 $$", "echo last; exit"):
        assert host.cmd(end).strip().startswith("last")
        assert host.cmd("echo again").strip() == "again"
        assert campus.ping([host, campus["h2"]], timeout="2") == 0.0


def test_twenty_four_hosts_leave_nothing() -> None:
    from bpf.objects import ensure_bpffs

    ensure_bpffs()
    read_fd, write_fd = os.pipe()

    def spawn() -> None:
        program = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        os.write(write_fd, str(program.pid).encode())
        time.sleep(1000)

    before = machine()
    net = LiveCampus(small_campus(24, switches=3))
    with net:
        assert machine().namespaces != before.namespaces
        assert len(list(net.pin_dir.iterdir())) == 25
        net.get("h5").cmd("sleep 1000 &")
        net.get("h6").cmd("setsid nohup sleep 1000 >/dev/null 2>&1 &")
        net.get("h7").popen("sleep 1000")
        forked = net.fork("h8", spawn, label="parent", keep=[write_fd])
        grandchild = int(os.read(read_fd, 100))
        started = identity.start_time(grandchild)
        run_dir = net.run_dir
        assert run_dir.is_dir()
    assert machine() == before
    assert not identity.is_alive(grandchild, started) and identity.start_time(forked.pid) is None
    os.close(read_fd)
    os.close(write_fd)
    assert not run_dir.exists() and not list(run_dir.parent.glob(f"{net.id}*"))
    net.stop()


def test_enforcement_is_attached_and_pinned_for_every_host(campus: LiveCampus) -> None:
    shown = campus.get("h1").cmd("tc filter show dev h1-eth0 egress; tc filter show dev h1-eth0 ingress")
    assert shown.count("direct-action") == 2
    for name in campus.spec.host_by_name:
        pinned = {path.name for path in (campus.pin_dir / name).iterdir()}
        assert pinned >= {"flows", "aggregate", "counters", "switch"}


def test_a_holder_that_is_killed_before_its_namespace_stands_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "NEXT_S", 0.5)
    started = holders.Holders(3, {})
    try:
        os.kill(started.wait_forked()[1], signal.SIGKILL)
        with pytest.raises(SetupError, match="did not answer"):
            started.unshare()
    finally:
        started.close()


def test_limits_of_the_kernels_programs_follow_the_rate_and_programs_taken_off_are_noticed() -> None:
    from testbed.enforcement import set_aggregate

    with LiveCampus(small_campus(2, rate_bytes_per_s=GBIT_PER_S)) as net:
        maps = net.maps("h1")
        net.set_link("h1", "s1", rate=GBIT_PER_S / 10)
        assert maps.aggregate.state().rate_bytes_per_s == 0  # no agent has set it
        set_aggregate(maps, 50e6)
        open_before = len(list(Path("/proc/self/fd").iterdir()))
        net.set_link("h1", "s1", rate=GBIT_PER_S / 5)
        net.set_link("h2", "s2", rate=GBIT_PER_S / 5)
        assert len(list(Path("/proc/self/fd").iterdir())) == open_before, "a change keeps no descriptor"
        assert maps.aggregate.state().rate_bytes_per_s == pytest.approx(0.7 * GBIT_PER_S / 5, rel=1e-3)
        link, own = net._ports.limits("h1")
        assert link.rate_bytes_per_s == int(1.05 * GBIT_PER_S / 5)
        # less than the share by what keeps checkpoints' connections alive, which have a queue of their own
        share = 1.02 * 0.698 * GBIT_PER_S / 5
        assert own is not None and own.rate_bytes_per_s == pytest.approx(share, rel=1e-3)
        read_back(net)
        assert "1 received" in net.get("h1").cmd("ping -c1 -W2 10.0.1.2")
        net.get("h1").cmd("tc filter del dev h1-eth0 egress")
        with pytest.raises(KernelMismatch, match="egress program of h1-eth0"):
            in_thread(net.kernel.read_back_hosts)
        port = net.plan.host_cables["h2"].a
        net.get(port.node).cmd(f"tc filter del dev {port.name} ingress")
        with pytest.raises(KernelMismatch, match=f"port program of {port.name}"):
            in_thread(net.kernel.read_back_fabric)


def test_failed_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = machine()

    def mismatch(*_args: object) -> None:
        raise KernelMismatch("address of h1-eth0", "a", "b")

    monkeypatch.setattr(readback, "check_address", mismatch)
    with pytest.raises(KernelMismatch):
        LiveCampus(small_campus(2), enforcement=False).start()
    assert machine() == before


def test_a_folder_that_another_user_leads_elsewhere_is_refused(campus: LiveCampus, tmp_path: Path) -> None:
    (link := tmp_path / "link").symlink_to("/etc")
    os.lchown(link, 65534, 65534)
    with pytest.raises(SetupError, match="is another user's"):
        campus.make_directory(link)


def test_failure_is_reported_with_its_traceback(campus: LiveCampus, tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("the disk is made of cheese")

    log = tmp_path / "log"
    process = campus.fork("h1", fail, label="agent h1", log=log)
    assert process.wait(60) == 1
    text = log.read_text()
    assert "agent h1 on h1" in text and "ValueError: the disk is made of cheese" in text and "in fail" in text


def test_terminate_ends_a_target_with_the_default_action(campus: LiveCampus) -> None:
    previous = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        process = campus.fork("h1", lambda: time.sleep(60), label="sleeper")
        time.sleep(0.05)
        process.terminate()
        assert process.wait(60) == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, previous)


def test_descriptors_are_closed_except_those_kept(campus: LiveCampus, tmp_path: Path) -> None:
    kept_fd, kept_other = os.pipe()
    dropped_fd, dropped_other = os.pipe()
    log = tmp_path / "log"

    def show() -> None:
        print(sorted(os.listdir("/proc/self/fd")), os.fstat(kept_other).st_ino)  # noqa: PTH208

    try:
        assert campus.fork("h1", show, label="fds", log=log, keep=[kept_other]).wait(60) == 0
        text = log.read_text()
        assert f"'{kept_other}'" in text and f"'{dropped_other}'" not in text and f"'{dropped_fd}'" not in text
    finally:
        for fd in (kept_fd, kept_other, dropped_fd, dropped_other):
            os.close(fd)


def test_forked_processes_talk_over_the_campus(campus: LiveCampus, tmp_path: Path) -> None:
    def serve() -> None:
        with socket.create_server(("10.0.1.1", 7000)) as server:
            ready, _ = server.accept()
            ready.sendall(b"hello from " + ready.getpeername()[0].encode())
            ready.close()

    def ask() -> None:
        for _ in range(100):
            try:
                with socket.create_connection(("10.0.1.1", 7000), timeout=5) as connection:
                    print(connection.recv(100).decode())
                    return
            except ConnectionRefusedError:
                time.sleep(0.05)

    log = tmp_path / "log"
    server, client = campus.fork_all([ForkRequest("h1", serve, "server"), ForkRequest("h3", ask, "client", log)])
    assert client.wait(60) == 0 and server.wait(60) == 0
    assert log.read_text() == "hello from 10.0.1.3\n"


def test_trio_runs_in_a_child_forked_while_trio_runs(campus: LiveCampus, tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def child() -> None:
        await trio.sleep(0.01)
        print("trio ran")

    async def parent() -> int:
        process = campus.fork("h2", lambda: trio.run(child), label="agent", log=log)
        with trio.fail_after(30):
            await trio.lowlevel.wait_readable(process)
        return process.wait(0)

    assert trio.run(parent) == 0, log.read_text()
    assert log.read_text() == "trio ran\n"


def test_fork_outside_the_main_thread_is_refused(campus: LiveCampus) -> None:
    with pytest.raises(SetupError, match="main thread"):
        in_thread(lambda: campus.fork("h1", lambda: None, label="x"))


CS1 = 8 << 2
SENDER, TARGET = "10.0.1.1", "10.0.1.2"
ETHER = Ether(src="02:00:0a:00:01:01", dst="02:00:0a:00:01:02")
DEADLINE_S = 30.0  # for a counter that moves within microseconds on a quiet machine


def class_packets(net: LiveCampus, node: str, interface: str) -> dict[str, int]:
    """Packets that took the research (1:2), the testbed's own (1:3) and the checkpoints' (1:4) queue of an interface."""
    shown = net[node].cmd(f"tc -s class show dev {interface}")
    found = re.findall(r"class htb 1:([234]) .*?Sent \d+ bytes (\d+) pkt", shown, re.DOTALL)
    return {{"2": "research", "3": "own", "4": "checkpoints"}[number]: int(count) for number, count in found}


def ip(tos: int = 0) -> Packet:
    return IP(src=SENDER, dst=TARGET, tos=tos) / UDP(dport=6000)


QUEUES = {
    "research": [
        ETHER / ip(),
        ETHER / ip(tos=16 << 2),
        ETHER / Dot1Q(vlan=5) / ip(),
        ETHER / IPv6(src="fe80::1", dst="fe80::2") / UDP(),
        ETHER / Dot1Q(vlan=5) / IPv6(src="fe80::1", dst="fe80::2") / UDP(),
        Ether(src=ETHER.src, dst=ETHER.dst, type=0x88B5) / Raw(bytes(50)),
    ],
    "own": [
        ETHER / ip(tos=34 << 2 | 1),
        ETHER / ip(tos=46 << 2),
        ETHER / ARP(op="is-at", hwsrc=ETHER.src, psrc=SENDER, pdst=TARGET),
    ],
    "checkpoints": [ETHER / ip(tos=CS1), ETHER / Dot1Q(vlan=5) / ip(tos=CS1)],
}


@pytest.mark.parametrize("borrows", [False, True])
def test_only_the_testbeds_own_code_points_leave_the_research_queue(borrows: bool) -> None:
    """At the host's end and at the switch's: what was not IPv4 with code point 0 was served as migration."""
    with (
        LiveCampus(small_campus(2), enforcement=False, borrows=borrows) as net,
        raw_socket(net, "h1", bypass=False) as sender,
    ):
        port = net.plan.host_cables["h2"].a
        for kind, frames in QUEUES.items():
            queue = "own" if kind == "checkpoints" and not borrows else kind
            for frame in frames:
                for node, interface in (("h1", "h1-eth0"), (port.node, port.name)):
                    before = class_packets(net, node, interface)
                    sender.send(bytes(frame))
                    deadline_s = time.monotonic() + DEADLINE_S
                    while class_packets(net, node, interface)[queue] == before[queue]:
                        assert time.monotonic() < deadline_s, f"{frame!r} was not {queue} at {interface}"
