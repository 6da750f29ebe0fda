"""The programs on real interfaces: attachment read back, pins that outlive a process, tags kept beside the packet."""

import os
import shutil
import socket
import subprocess
import time
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from bpf.errors import BpfError
from bpf.layout import BucketMode, ClassId, Mode
from bpf.maps import FlowKey, HostMaps
from bpf.objects import HostPrograms, ensure_bpffs, load_host_programs
from testbed.emulation.kernel import attachment
from testbed.emulation.kernel.attachment import EGRESS, INGRESS
from testbed.emulation.netlink import NetlinkRefused, NetlinkSocket
from tests.bpf_machine import KEY, in_own_namespace, loaded_or_skip

pytestmark = [pytest.mark.kernel, pytest.mark.stock_kernel]


def ip(*lines: str) -> None:
    for line in lines:
        subprocess.run(["ip", *line.split()], check=True, capture_output=True)


def attach(ifindex: int, programs: HostPrograms) -> None:
    with NetlinkSocket() as netlink:
        fds = programs.egress_fd, programs.ingress_fd
        netlink.send(attachment.host_requests(ifindex, *fds, f"interface {ifindex}"))


def attached(interface: str) -> list[int]:
    with NetlinkSocket() as netlink:
        found = [
            attachment.attached(netlink, socket.if_nametoindex(interface), hook, interface)
            for hook in (EGRESS, INGRESS)
        ]
    return [number for programs in found for number, _ in programs]


def test_attached_programs_are_read_back_by_their_numbers(host):
    def body() -> None:
        ip("link add va type veth peer name vb")
        assert attached("va") == []
        attach(socket.if_nametoindex("va"), host)
        assert attached("va") == [attachment.program_id(fd) for fd in (host.egress_fd, host.ingress_fd)]
        assert attached("vb") == []
        with pytest.raises(NetlinkRefused, match="File exists"):
            attach(socket.if_nametoindex("va"), host)

    in_own_namespace(body)


def test_kill_switch_closes_a_real_connection_path_and_opens_it_again(host):
    def body() -> None:
        ip("link set lo up")
        attach(socket.if_nametoindex("lo"), host)
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            live = socket.create_connection(address, timeout=5)
            served, _ = server.accept()
            host.switch.set(Mode.DRAIN)
            with pytest.raises(TimeoutError):
                socket.create_connection(address, timeout=0.3)
            live.sendall(b"alive")
            assert served.recv(5) == b"alive"
            host.switch.set(Mode.ISOLATE)
            host.switch.allow_coordinator(IPv4Address("127.0.0.1"))
            socket.create_connection(address, timeout=5).close()
            host.switch.set(Mode.OFF)
            socket.create_connection(address, timeout=5).close()

    in_own_namespace(body)


def test_tag_that_is_kept_beside_the_packet_hides_neither_flow_nor_syn(host):
    """On veth a VLAN device leaves its tag in the skb's metadata: the bytes are untagged."""

    def body() -> None:
        ip("link add va type veth peer name vb", "link set va up", "link set vb up")
        try:
            ip("link add link va name va.5 type vlan id 5")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this kernel makes no 802.1Q devices: {error.stderr.decode().strip()}")
        ip("addr add 10.5.0.1/24 dev va.5", "link set va.5 up")
        ip("neigh add 10.5.0.2 lladdr 02:00:00:00:00:09 dev va.5 nud permanent")
        attach(socket.if_nametoindex("va"), host)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind(("10.5.0.1", 4000))
            key = FlowKey(IPv4Address("10.5.0.1"), 4000, IPv4Address("10.5.0.2"), 4001, 17)
            host.flows.insert(key, traffic_class=ClassId.EMERGENCY, mode=BucketMode.ACCOUNT)
            sender.sendto(b"x" * 50, ("10.5.0.2", 4001))
            assert host.flows.lookup(key).traffic.packets == 1

    in_own_namespace(body)


def test_super_packets_of_a_real_flow_are_charged_what_goes_over_the_wire(host):
    """The receiver's interface counts the segments that the sender's super-packets became."""

    def body() -> None:
        ip("link set lo up")
        subprocess.run(["ip", "link", "set", "lo", "mtu", "1500"], check=True)
        attach(socket.if_nametoindex("lo"), host)
        with socket.create_server(("127.0.0.1", 0)) as server:
            client = socket.create_connection(server.getsockname())
            client.setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20
            )  # takes all at once: it is not read yet
            client.settimeout(20)
            served, _ = server.accept()
            served.settimeout(20)
            source, destination = client.getsockname(), server.getsockname()
            key = FlowKey(IPv4Address(source[0]), source[1], IPv4Address(destination[0]), destination[1])
            host.flows.insert(key, traffic_class=ClassId.PLANNED, mode=BucketMode.ACCOUNT)
            client.sendall(bytes(100_000))
            received = 0
            while received < 100_000:
                received += len(served.recv(1 << 16))
            traffic = host.flows.lookup(key).traffic
            segments = -(-100_000 // 1448)
            assert traffic.bytes >= 100_000 + segments * 66
            assert traffic.bytes <= 100_000 + (segments + traffic.packets) * 66 + 1514
            assert traffic.packets < segments

    in_own_namespace(body)


@pytest.fixture
def pin_dir(tmp_path):
    loaded_or_skip().close()
    path = ensure_bpffs() / f"reclaim-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def test_switch_is_set_through_its_pin_after_the_loader_is_gone(pin_dir: Path, host):
    """A child loads, attaches and dies; the owner's process sets the switch and finds the flows."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            programs = load_host_programs(pin_dir)
            programs.flows.insert(KEY, traffic_class=ClassId.PLANNED, mode=BucketMode.ACCOUNT)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    maps = HostMaps.open_pinned(pin_dir)
    try:
        maps.switch.set(Mode.DRAIN)
        again = HostMaps.open_pinned(pin_dir)
        assert again.switch.mode is Mode.DRAIN
        assert [key for key, _ in again.flows.items()] == [KEY]
        assert again.flows.delete(KEY).traffic_class is ClassId.PLANNED
        again.close()
    finally:
        maps.close()


def test_pins_of_an_earlier_run_are_refused_until_they_are_taken_away(pin_dir: Path):
    load_host_programs(pin_dir).close()
    with pytest.raises(BpfError, match="File exists"):
        load_host_programs(pin_dir)
    shutil.rmtree(pin_dir)
    load_host_programs(pin_dir).close()
