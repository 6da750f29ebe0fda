"""Mininet's scripts, examples and tests on a campus: what they get is what Mininet gives, or a message.

Examples run as Debian's package ships them, with the constructor swapped; what they must print is what Mininet's test of each
demands. Mininet's tests of its core are in no package: they are written anew. `docs/mininet.md` lists which apply.
"""

import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mininet
import pytest
from mininet.topo import LinearTopo, Topo

from testbed import Campus
from testbed.errors import SetupError, SpecError
from tests.emulation_campuses import kernel, small_campus
from topologies import from_mininet
from topologies.spec import Fabric

EXAMPLES = Path(mininet.__file__).parent / "examples"
# the arguments that these examples give beside the topology ask for nothing that a campus is not
SWAPPED = """
import dataclasses, runpy, sys
import mininet.net, mininet.node
from testbed import Campus
from topologies import from_mininet
from topologies.spec import Fabric

class Swapped(Campus):
    def __init__(self, topo=None, *, waitConnected=False, switch=None):
        super().__init__(dataclasses.replace(from_mininet(topo), fabric=Fabric(sys.argv[2])))

mininet.net.Mininet = Swapped
mininet.node.OVSSwitch.setup = classmethod(lambda _: None)  # asks for the machine's Open vSwitch, which no campus needs
runpy.run_path(sys.argv[1], run_name="__main__")
"""
WALK = """
from mininet.cli import CLI
from mininet.topo import MinimalTopo
from testbed import Campus
with Campus(MinimalTopo()) as net:
    CLI(net, script="commands")
"""
WALKED = (  # what is typed, and what is printed
    ("nodes", "coord h1 h2 room s1\n"),
    ("net", "h1 h1-eth0:s1-eth1\n(.*\n)*s1 s1-eth1:h1-eth0 s1-eth2:h2-eth0 "),
    ("dump", r"<CampusHost h1: h1-eth0:10\.0\.0\.1 pid=\d+>"),
    ("h1 ifconfig -a", r"h1-eth0: (.*\n)*.*inet 10\.0\.0\.1 (.*\n)*lo: "),
    ("pingall", r"\*\*\* Results: 0% dropped \(6/6 received\)\n"),
    # in the way of the next, which ends it alone
    ("h2 iperf -s > /dev/null &", ""),
    ("coord iperf -s > /dev/null &", ""),
    ("iperf h1 h2", r"\*\*\* Iperf: testing TCP .*\n\*\*\* Results: \['[\d.]+ .bits/sec', '[\d.]+ .bits/sec'\]\n"),
    ("iperfudp 5M h1 h2", r"\*\*\* Results: \['5M', '[\d.]+ Mbits/sec', '[\d.]+ Mbits/sec'\]\n"),
    ("coord jobs", "Running"),
    ("link s1 h1 down", ""),
    ("h1 ping -c 1 -W 1 h2", "Network is unreachable"),
    ("switch s1 stop", ""),
    ("coord ping -c 1 -W 1 h2", "100% packet loss"),
    ("switch s1 start", ""),
    ("h1 ping -c 1 -W 1 h2", "Network is unreachable"),
    ("link s1 h1 up", ""),
    ("h1 ping -c 1 -W 2 h2", " 0% packet loss"),
    ("py h1.IP()", r"10\.0\.0\.1\n"),
    ("links", r"s1-eth1<->h1-eth0 \(OK OK\)"),
    ("ports", "s1 s1-eth1:1 s1-eth2:2 "),
)

pytestmark = [*kernel, pytest.mark.apart]


def played(name: str, fabric: Fabric = Fabric.BRIDGE, typed: str = "") -> str:
    """Return what an example of Mininet's prints on a campus, with a /tmp of its own."""
    own_tmp = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /tmp && exec "$@"', "sh"]
    command = [*own_tmp, sys.executable, "-c", SWAPPED, str(EXAMPLES / f"{name}.py"), fabric]
    done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.mark.long
def test_multiping_finds_each_host_and_not_the_one_that_is_not_there() -> None:
    said = played("multiping")
    answers = re.findall(r"(\w+): [\d.]+ -> ([\d.]+) \d packets transmitted, (\d) received", said)
    assert all(received == "01"[target != "10.0.0.200"] for _, target, received in answers)
    for name, targets in re.findall(r"Host (\w+) \([\d.]+\) will be pinging ips: ([\d. ]+)", said):
        assert set(targets.split()) == {target for host, target, _ in answers if host == name}


def test_multipoll_sees_a_ping_a_second_of_each_host() -> None:
    said = played("multipoll")
    pings = Counter(re.findall(r"(\w+): \d+ bytes from", said))
    assert pings.keys() == {"h1", "h2", "h3", "coord"}
    assert min(pings.values()) >= int(re.findall(r"Monitoring output for (\d+) seconds", said)[0])


@pytest.mark.parametrize("fabric", Fabric)
def test_multitest_reaches_all_and_lists_interfaces(fabric: Fabric) -> None:
    said = played("multitest", fabric, typed="exit\n")
    assert re.findall(r"(\d+)% dropped", said) == ["0"]
    assert set(re.findall(r"(h\d-eth0)", said)) == {f"h{n}-eth0" for n in range(1, 5)}


@pytest.mark.parametrize("name", ["popen", pytest.param("popenpoll", marks=pytest.mark.long)])
def test_popen_of_each_host_is_monitored_and_loses_no_ping(name: str) -> None:
    said = played(name)
    results = re.findall(r"<\w+>: (\d+) packets transmitted, (\d+) received", said)
    assert len(set(re.findall(r"<(\w+)>: PING ", said))) == len(results) > 3
    assert all(sent == received for sent, received in results)


def test_walkthrough_prints_what_mininets_does(tmp_path: Path) -> None:
    """A part of Mininet's test_walkthrough: its commands at the prompt."""
    (tmp_path / "commands").write_text("".join(f"py '<next>'\n{command}\n" for command, _ in WALKED))
    done = subprocess.run([sys.executable, "-c", WALK], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    printed = (done.stdout + done.stderr).split("<next>\n")[1:]
    for (command, pattern), text in zip(WALKED, printed, strict=True):
        assert re.search(pattern, text), (command, text)


class Options(Topo):  # type: ignore[misc]
    """Two hosts on a switch by links of these options."""

    def build(self, **options: Any) -> None:
        """Build it."""
        self.addSwitch("s1")
        for host in ("h1", "h2"):
            self.addLink(self.addHost(host), "s1", **options)


def test_rate_delay_and_loss_are_what_was_asked_for() -> None:
    """Mininet's test_hifi, without the CPU limits of its hosts."""
    with Campus(Options(bw=5, delay="15ms")) as net:
        h1, h2 = net["h1"], net["h2"]
        _, server, _ = net.iperf([h1, h2], l4Type="UDP", seconds=2)
        assert 4.0 <= float(server.split()[0]) <= 6.0
        assert 60.0 <= net.pingFull([h1, h2])[0][2][2] <= 72.0
        h1.intf().config(delay="0 ms", loss=50)
        text = h1.cmd("ping -q -i 0.01 -c 200", h2.IP())
        assert 30.0 <= float(re.findall(r"([\d.]+)% packet loss", text)[0]) <= 70.0


@pytest.mark.parametrize("fabric", Fabric)
def test_a_line_of_five_switches_loses_no_ping(fabric: Fabric) -> None:
    """Mininet's test_nets."""
    with Campus(replace(from_mininet(LinearTopo(5)), fabric=fabric)) as net:
        assert net.waitConnected(timeout=5)
        assert net.pingAll(timeout="2") == 0.0


def test_a_command_before_the_start_is_refused_and_the_host_works_after() -> None:
    net = Campus(small_campus(2))
    with pytest.raises(SetupError, match="start"):
        net["h1"].cmd("true")
    with net:
        assert net["h1"].cmd("echo hi") == "hi\r\n"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda net: net["h1"].intf().config(delay=5), "delay = 5: a text with its unit"),
        (lambda net: net["h1"].intf().config(delay="5"), "delay = '5': a text with its unit"),
        (lambda net: net["h1"].intf().config(delay="5 ms", jitter=0.1), "jitter = 0.1: a text with its unit"),
        (lambda net: net.runCpuLimitTest(0.5), "CPU limit"),
        (lambda net: net.iperf(l4Type="SCTP"), "TCP or UDP"),
    ],
)
def test_what_would_mean_something_else_is_refused(call: Callable[[Any], object], said: str, campus: Campus) -> None:
    with pytest.raises((SetupError, SpecError), match=said):
        call(campus)


def test_a_controllers_unix_socket_anywhere_is_found_and_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        listener.settimeout(20.0)
        with Campus("example:twocores", controller=f"unix:{tmp_path}/socket") as net:
            assert not net.waitConnected(timeout=0), "nobody has answered yet"
            listener.accept()[0].close()
