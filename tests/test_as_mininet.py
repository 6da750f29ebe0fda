"""A campus as stock Mininet sees it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.emulation.kernel.openvswitch import missing_programs
from tests.doc_pages import blocks
from tests.emulation_campuses import kernel, small_campus
from topologies import files
from topologies.as_mininet import CampusTopo, topos
from topologies.errors import SpecError
from topologies.files import dumps

CUSTOM = Path(__file__).parents[1] / "topologies" / "as_mininet.py"
STOCK = """
import sys
from mininet.net import Mininet
from mininet.nodelib import LinuxBridge
Mininet.inited = True  # leave the machine's limits alone
customs = {}
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), customs, customs)  # as mn --custom does
net = Mininet(customs["topos"]["campus"](sys.argv[2]), switch=LinuxBridge, controller=None)
try:
    net.start()
    print("lost", net.ping([net["h1"], net["h2"]], timeout="3"))
finally:
    net.stop()
"""

MN = """
import runpy, sys
import mininet.clean
from mininet.net import Mininet
mininet.clean.cleanup = lambda: print("CLEANED THE MACHINE")  # the true one would end every campus on it
Mininet.inited = True  # leave the machine's limits alone
sys.argv = ["mn", *sys.argv[1:]]
runpy.run_path("/usr/bin/mn", run_name="__main__")
"""
BRIDGES = ["--switch", "lxbr", "--controller", "none", "--test", "none"]
REPOSITORY = Path(__file__).parents[1]
PROGRAMMED = REPOSITORY / "docs" / "examples" / "stock_mininet.sh"


def test_topology_has_the_campus_nodes_and_links() -> None:
    spec = files.campus54()
    topo = CampusTopo(spec)
    assert set(topo.hosts()) == set(spec.host_by_name) and set(topo.switches()) == set(spec.switch_by_name)
    assert {frozenset(pair) for pair in topo.links()} == {frozenset((link.a, link.b)) for link in spec.links}


def test_options_are_in_mininets_units() -> None:
    topo = CampusTopo(small_campus(1, delay_s=0.0025))
    info = topo.linkInfo("h1", "s1")
    assert (info["bw"], info["delay"]) == (1000.0, "2500us") and "loss" not in info
    assert topo.nodeInfo("h1") == {"ip": "10.0.1.1/8", "mac": "02:00:0a:00:01:01"}


def test_topos_take_mns_arguments() -> None:
    assert len(topos["three_tier"](hosts=5, buildings=2).hosts()) == 6
    assert len(topos["campus"]("example:campus54").hosts()) == 54


def test_what_a_controller_is_told_is_what_mininet_builds() -> None:
    spec = files.load("example:twocores")
    topo = CampusTopo(spec)
    told = topo.openflow()
    assert told.switches == {name: int(topo.nodeInfo(name)["dpid"], 16) for name in topo.switches()}
    assert {trunk.ends for trunk in told.trunks} | {frozenset((s.host, s.switch)) for s in told.stations} == {
        frozenset(pair) for pair in topo.links()
    }
    for station in told.stations:
        assert topo.port(station.host, station.switch)[1] == station.port
        assert station.address == str(spec.host_by_name[station.host].address)
    for trunk in told.trunks:
        assert topo.port(trunk.a, trunk.b) == (trunk.a_port, trunk.b_port)
    assert told.root == "core1"


def in_own_network(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Debian's Python, which has Mininet, in a network namespace of its own."""
    python = ["unshare", "-n", "/usr/bin/python3", *argv]
    return subprocess.run(python, check=False, capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("campus", ("none.toml",), r"none\.toml"),
        ("three_tier", {"hosts": -1}, "hosts"),
        ("three_tier", {"horses": 2}, "horses"),
    ],
)
def test_wrong_argument_is_named(name: str, given: Any, said: str) -> None:
    with pytest.raises((SpecError, TypeError), match=said):
        topos[name](**given) if isinstance(given, dict) else topos[name](*given)


class TestStock:
    """Built by stock classes, in a network namespace of the test's own."""

    pytestmark = [*kernel, pytest.mark.apart]

    def test_stock_mininet_builds_a_campus_file(self, tmp_path: Path) -> None:
        path = tmp_path / "campus.toml"
        path.write_text(dumps(small_campus(2)))
        done = in_own_network(tmp_path, "-c", STOCK, str(CUSTOM), str(path))
        assert "lost 0.0" in done.stdout, done.stderr

    @pytest.mark.parametrize(
        ("topo", "said"),
        [("campus,{}/wrong.toml", "wrong.toml"), ("campus", "campus"), ("three_tier,hosts=many", "hosts")],
    )
    def test_wrong_argument_of_mn_is_named_and_cleans_nothing(self, topo: str, said: str, tmp_path: Path) -> None:
        (tmp_path / "wrong.toml").write_text("name = 3\n")
        argv = ["-c", MN, "--custom", str(CUSTOM), "--topo", topo.format(tmp_path), *BRIDGES]
        done = in_own_network(tmp_path, *argv)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert said in done.stderr and "Traceback" not in done.stderr

    @pytest.mark.parametrize("module", ["networkx", "msgspec"])
    def test_a_python_that_lacks_a_package_cleans_nothing(self, module: str, tmp_path: Path) -> None:
        """One of them is imported with the file, the other by the campus."""
        (tmp_path / f"{module}.py").write_text(f"raise ModuleNotFoundError('No module named {module}')")
        (tmp_path / "g.graphml").write_text("<graphml/>")
        done = in_own_network(tmp_path, "-c", MN, "--custom", str(CUSTOM), "--topo", "campus,g.graphml", *BRIDGES)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert f"No module named {module}" in done.stderr


@pytest.mark.skipif(bool(missing_programs()), reason=f"Open vSwitch lacks {missing_programs()}")
class TestStockOpenvSwitch:
    """`mn --switch ovs --controller remote`, with daemons of the test's own, in a network namespace of its own."""

    pytestmark = [*kernel, pytest.mark.apart]

    def play(self, campus: str, commands: list[str], tmp_path: Path, controller: str = "") -> str:
        mn, after_start = tmp_path / "mn", tmp_path / "commands"
        mn.write_text(f"#!/usr/bin/python3{MN}")
        mn.chmod(0o755)
        after_start.write_text("\n".join(commands))
        done = subprocess.run(
            ["unshare", "-n", "sh", "-c", f"ip link set lo up; exec {PROGRAMMED} {campus} --test none --post {after_start}"],
            check=False, capture_output=True, text=True, timeout=120,
            env={**os.environ, "PYTHON": sys.executable, "MN": str(mn), "TMPDIR": str(tmp_path), "CONTROLLER": controller},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted({"mn", "commands", *self.files})
        return done.stdout + done.stderr

    files: tuple[str, ...] = ()

    def test_our_controller_leads_round_a_cut_trunk_of_a_redundant_campus(self, tmp_path: Path) -> None:
        """Four cables in a ring, which would flood for ever without it."""
        [session] = blocks("docs/how/fabric.md", "console")
        start, *typed = session.text.splitlines()
        assert start == "sudo docs/examples/stock_mininet.sh example:twocores"
        pings, cut, groups = [line.removeprefix("mininet> ") for line in typed]
        commands = ["sh sleep 2", pings, cut, "sh sleep 1", "pingall 2"]
        tables = ["dpctl dump-flows -O OpenFlow13", groups]
        said = self.play("example:twocores", commands + tables, tmp_path)
        assert said.count("0% dropped (42/42 received)") == 2
        for switch in ("core1", "core2", "library", "physics"):
            rules = said.split(f"*** {switch} ---")[1].split("***")[0]
            assert "priority=3,arp actions=goto_table:1" in rules and "group:" in rules
        assert said.count("OFPST_GROUP_DESC reply") == 4  # as the page's last command has it

    @pytest.mark.long
    def test_anothers_controller_leads_a_tree(self, tmp_path: Path) -> None:
        (tmp_path / "tree.toml").write_text(dumps(small_campus(3)))
        self.files = ("tree.toml",)
        learning = f"{sys.executable} {REPOSITORY / 'docs/examples/learning_switch.py'}"
        commands = ["sh sleep 2", "pingall 2", "dpctl dump-flows -O OpenFlow13"]
        said = self.play(str(tmp_path / "tree.toml"), commands, tmp_path, learning)
        assert "0% dropped" in said and "actions=CONTROLLER:65535" in said and "dl_dst=02:00:0a:00:01:01" in said
