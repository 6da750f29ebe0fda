"""Switches of both fabrics against a root user of a host, who sends what frames they like past all that the host enforces."""

import re
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from bpf.layout import Mode
from testbed.emulation.campus import LiveCampus
from testbed.emulation.kernel.openvswitch import SO_SNDBUFFORCE, missing_programs
from testbed.emulation.kernel.programs import OWN_SLACK, PORT_BURST_BYTES
from tests.emulation_campuses import kernel, raw_socket, socket_in
from tests.patience import wait_until
from topologies.presets import leaf_spine, three_tier
from topologies.spec import Fabric
from topologies.units import MBIT_PER_S

pytestmark = [*kernel, pytest.mark.stock_kernel]
AF41, CS1, EF = 34 << 2, 8 << 2, 46 << 2
# h1, h2 and h3 hang on one switch; h4, on another, is closed by its owner
ATTACKER, NEIGHBOUR, VICTIM, COORDINATOR = "10.1.0.1", "10.1.0.2", "10.2.0.1", "10.0.0.1"
DEADLINE_S = 30.0  # for what takes milliseconds on a quiet machine


def mac(address: str) -> str:
    return "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))


ETHER = Ether(src=mac(ATTACKER), dst=mac(VICTIM))
EVERYBODY = Ether(src=mac(ATTACKER), dst="ff:ff:ff:ff:ff:ff")


@pytest.fixture(scope="module")
def campus() -> Iterator[LiveCampus]:
    """Two leaves of three hosts with 10 Mbit/s under two spines, by trunks of 15 Mbit/s: less than two floods need, and so little
    that an emulated processor sends them, too."""
    if missing_programs():
        pytest.skip(f"Open vSwitch lacks {missing_programs()}")
    spec = leaf_spine(2, 2, 3, access_bytes_per_s=10 * MBIT_PER_S, uplink_bytes_per_s=15 * MBIT_PER_S)
    with LiveCampus(spec) as net:
        yield net


@pytest.fixture(scope="module", params=Fabric)
def switched(request: pytest.FixtureRequest) -> Iterator[LiveCampus]:
    """Hosts of the same addresses on either fabric."""
    if request.param is Fabric.OPENVSWITCH:
        yield request.getfixturevalue("campus")
        return
    with LiveCampus(three_tier(6, 2, access_bytes_per_s=10 * MBIT_PER_S)) as net:
        yield net


def forged(counted: LiveCampus) -> int:
    return counted.port_counters("h1").forged.dropped_packets


def until_counted(read: Callable[[], int], wanted: int) -> None:
    """Wait for a counter to come to this, and fail if it does not, or passes it."""
    wait_until(lambda: read() >= wanted, read)
    assert read() == wanted


# of each kind that the program of a port knows (test_bpf_port has them all), as they cross a cable
FORGED: dict[str, Packet] = {
    "datagram": ETHER / IP(src=COORDINATOR, dst=VICTIM) / UDP(sport=7100, dport=5000) / Raw(b"forged"),
    "connection": ETHER / IP(src=COORDINATOR, dst=VICTIM) / TCP(sport=7100, dport=5000, flags="S"),
    "later fragment": ETHER / IP(src=COORDINATOR, dst=VICTIM, frag=4) / Raw(bytes(24)),
    "another's MAC": Ether(src=mac(COORDINATOR), dst=mac(VICTIM)) / IP(src=ATTACKER, dst=VICTIM) / UDP(dport=5000),
    "tags of priority": ETHER / Dot1Q(vlan=0) / Dot1Q(vlan=0) / IP(src=COORDINATOR, dst=VICTIM) / UDP(dport=5000),
    "QinQ": Ether(src=ETHER.src, dst=ETHER.dst, type=0x88A8)
    / Dot1Q(vlan=5)
    / Dot1Q(vlan=6)
    / IP(src=COORDINATOR, dst=VICTIM)
    / UDP(dport=5000),
    "tagged ARP reply": ETHER / Dot1Q(vlan=0) / ARP(op="is-at", hwsrc=ETHER.src, psrc=COORDINATOR, pdst=VICTIM),
    "ARP question": EVERYBODY / ARP(op="who-has", hwsrc=ETHER.src, psrc=COORDINATOR, pdst=NEIGHBOUR),
    "gratuitous ARP": EVERYBODY / ARP(op="is-at", hwsrc=ETHER.src, psrc=COORDINATOR, pdst=COORDINATOR),
    "IPv6": ETHER / IPv6(src="fe80::1", dst="ff02::1") / UDP(dport=5000),
}  # fmt: skip


def test_forged_frames_pass_no_switch_and_a_closed_host_hears_nothing_of_genuine_ones(switched: LiveCampus) -> None:
    known = [switched[host].cmd(f"ping -c1 -W5 {COORDINATOR} >/dev/null; ip neigh") for host in ("h2", "h4")]
    assert all(f"{COORDINATOR} dev" in text and mac(COORDINATOR) in text for text in known)
    before, status = forged(switched), switched.maps("h4").switch.status
    genuine = [
        ETHER / IP(src=ATTACKER, dst=VICTIM) / UDP(dport=5000) / Raw(b"after"),
        ETHER / IP(src=ATTACKER, dst=VICTIM, tos=EF) / UDP(dport=5000) / Raw(b"after"),
        ETHER / IP(src=ATTACKER, dst=VICTIM) / TCP(dport=5001, flags="S"),
        ETHER / IP(src=ATTACKER, dst=VICTIM) / ICMP(),
    ]
    with (
        socket_in(switched, "h4", socket.AF_INET, socket.SOCK_DGRAM) as victim,
        socket_in(switched, "h4", socket.AF_INET, socket.SOCK_STREAM) as caller,
        socket_in(switched, "h1", socket.AF_INET, socket.SOCK_STREAM) as called,
        raw_socket(switched, "h1", bypass=True) as attacker,
    ):
        victim.bind(("0.0.0.0", 5000))
        victim.settimeout(DEADLINE_S)
        called.bind(("0.0.0.0", 5002))
        called.listen()
        attacker.send(bytes(ETHER / IP(src=ATTACKER, dst=VICTIM) / UDP(dport=5000) / Raw(b"before")))
        assert victim.recv(100) == b"before"
        switched.maps("h4").switch.set(Mode.ISOLATE)
        try:
            for frame in FORGED.values():
                attacker.send(bytes(frame))
            until_counted(lambda: forged(switched), before + len(FORGED))
            assert status().dropped_packets == 0, "a forged frame came as far as the kill-switch"
            for frame in genuine:
                attacker.send(bytes(frame))
            until_counted(lambda: status().dropped_packets, len(genuine))
            caller.settimeout(0.3)
            with pytest.raises(TimeoutError):
                caller.connect((ATTACKER, 5002))
            victim.settimeout(0)
            with pytest.raises(BlockingIOError):
                victim.recv(100)
        finally:
            switched.maps("h4").switch.set(Mode.OFF)
    for host in ("h2", "h4"):
        assert mac(ATTACKER) not in "".join(
            line for line in switched[host].cmd("ip neigh").splitlines() if line.startswith(COORDINATOR)
        )


def test_two_floods_of_migrations_leave_a_third_hosts_research_its_reserve_on_their_trunk(campus: LiveCampus) -> None:
    """Each keeps to its own port's share, together they have more than the trunk, and research loses no packet to them there."""
    [trunk] = [trunk for trunk in campus.plan.trunks if {trunk.a.node, trunk.b.node} == {"l1", "s1"}]
    end = trunk.a if trunk.a.node == "l1" else trunk.b
    share = campus.plan.host_cables["h1"].a.shape.migration_bytes_per_s

    def of_class(number: int) -> tuple[int, int, int]:
        """Bytes and packets that a class of the trunk has sent, and packets that it dropped."""
        shown = campus["l1"].cmd(f"tc -s class show dev {end.name}")
        found = re.search(rf"class htb 1:{number} .*?Sent (\d+) bytes (\d+) pkt \(dropped (\d+)", shown, re.DOTALL)
        assert found, shown
        return int(found[1]), int(found[2]), int(found[3])

    def flood(address: str, target: str) -> bytes:
        ip = IP(src=address, dst=target, tos=AF41) / UDP(dport=6000) / Raw(bytes(1458))
        return bytes(Ether(src=mac(address), dst=mac(target)) / ip)

    third, other = "10.1.0.3", "10.2.0.2"
    research = bytes(
        Ether(src=mac(third), dst=mac(other)) / IP(src=third, dst=other) / UDP(dport=6001) / Raw(bytes(1458))
    )
    campus.configLinkStatus("l1", "s2", "down")  # there is one way now
    try:
        wait_until(lambda: " 0% packet loss" in campus["h3"].cmd(f"ping -c2 -i0.05 -W1 {other}"))
        ports = {host: campus.port_counters(host).own for host in ("h1", "h2")}
        own_before, research_before, sent = of_class(3), of_class(2), 0
        with (
            raw_socket(campus, "h1", bypass=True) as first,
            raw_socket(campus, "h2", bypass=True) as second,
            raw_socket(campus, "h3", bypass=True) as honest,
        ):
            frames = flood(ATTACKER, VICTIM), flood(NEIGHBOUR, "10.2.0.3")
            # where switches forward in the kernel, what waits at the trunk counts for its sender, who would be held back by it
            for of_root in (first, second):
                of_root.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 1 << 27)
            began_s = time.monotonic()
            for _ in range(2000):
                for _ in range(5):
                    first.send(frames[0])
                    second.send(frames[1])
                if (sent + 1) * len(research) < 0.9 * end.shape.research_bytes_per_s * (time.monotonic() - began_s):
                    honest.send(research)
                    sent += 1
        now_at, before_at = (of_class(2), of_class(3)), None
        while now_at != before_at:  # until the queues are empty
            before_at = now_at
            time.sleep(0.1)
            now_at = of_class(2), of_class(3)
        took_s = time.monotonic() - began_s
        # (a switch in user space may lose packets of all before the trunk, where it is given too little of the processors)
        # nothing of the floods is in research's class: a frame or two of the switches' own may be
        assert 0 < of_class(2)[1] - research_before[1] <= sent + 3
        assert of_class(2)[2] == research_before[2], "research lost packets to migrations"
        passed = 0
        for host, before in ports.items():
            now = campus.port_counters(host).own
            assert now.dropped_packets > before.dropped_packets, f"{host} sent no flood"
            passed += now.bytes - before.bytes
        assert passed <= 2 * (PORT_BURST_BYTES + OWN_SLACK * share * took_s + len(frames[0]))
        assert 0 < of_class(3)[0] - own_before[0] <= passed
    finally:
        campus.configLinkStatus("l1", "s2", "up")
