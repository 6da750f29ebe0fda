"""A campus as stock Mininet sees it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.emulation_campuses import kernel, small_campus
from topologies import presets
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
mininet.clean.cleanup = lambda: print("CLEANED THE MACHINE")  # the true one would end every campus on it
sys.argv = ["mn", "--custom", sys.argv[1], "--topo", sys.argv[2], "--switch", "lxbr", "--controller", "none", "--test", "none"]
runpy.run_path("/usr/bin/mn", run_name="__main__")
"""


def test_topology_has_the_campus_nodes_and_links() -> None:
    spec = presets.campus54()
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
    assert len(topos["campus54"]().hosts()) == 54


def test_wrong_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text("name = 3\n")
    with pytest.raises(SpecError, match=r"wrong\.toml"):
        topos["campus"](str(path))


class TestStock:
    """Built by stock classes, in a network namespace of the test's own."""

    pytestmark = kernel

    def test_stock_mininet_builds_a_campus_file(self, tmp_path: Path) -> None:
        path = tmp_path / "campus.toml"
        path.write_text(dumps(small_campus(2)))
        done = subprocess.run(
            ["unshare", "-n", "/usr/bin/python3", "-c", STOCK, str(CUSTOM), str(path)],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert "lost 0.0" in done.stdout, done.stderr

    @pytest.mark.parametrize(
        ("topo", "said"),
        [
            ("campus,{}/none.toml", "none.toml"),
            ("campus,{}/wrong.toml", "wrong.toml"),
            ("campus", "campus"),
            ("three_tier,hosts=-1", "hosts"),
            ("three_tier,hosts=many", "hosts"),
            ("three_tier,horses=2", "horses"),
        ],
    )
    def test_wrong_argument_of_mn_is_said_and_cleans_nothing(
        self, topo: str, said: str, tmp_path: Path
    ) -> None:
        (tmp_path / "wrong.toml").write_text("name = 3\n")
        done = subprocess.run(
            ["unshare", "-n", "/usr/bin/python3", "-c", MN, str(CUSTOM), topo.format(tmp_path)],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert said in done.stderr and "Traceback" not in done.stderr
