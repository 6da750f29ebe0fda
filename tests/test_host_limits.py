"""Hosts with limits: a busy loop gets its share, memory beyond the limit ends one process, and nothing outlives the campus."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mininet.node import CPULimitedHost
from mininet.topo import Topo

from testbed import control_groups
from testbed.emulation.campus import LiveCampus
from testbed.emulation.safety.cleaning import clean_up
from testbed.errors import SetupError
from tests.emulation_campuses import kernel, small_campus
from topologies import files
from topologies.as_mininet import CampusTopo
from topologies.errors import SpecError
from topologies.of_mininet import from_mininet
from topologies.scale import Scale
from topologies.spec import Campus, HostLimits

LIMITS = HostLimits(cpu=0.2, memory_bytes=96e6, cores="0")
BUSY = """
import time
begin, until = time.monotonic(), time.monotonic() + 1.5
while time.monotonic() < until:
    pass
print(time.process_time() / (time.monotonic() - begin))
"""
GREEDY = "held = bytearray(300 << 20); print(len(held))"
OWNER = """
import sys, time
from pathlib import Path
from testbed.emulation.campus import LiveCampus
from tests.test_host_limits import limited
net = LiveCampus(limited(), enforcement=False, root=Path(sys.argv[1]))
net.start()
net["h1"].popen(["setsid", "sleep", "1000"])
print(net.id, flush=True)
time.sleep(1000)
"""


def limited() -> Campus:
    campus = small_campus(2)
    return replace(campus, hosts=tuple(replace(h, limits=LIMITS) if h.name == "h1" else h for h in campus.hosts))


@pytest.fixture(scope="module")
def net() -> Iterator[LiveCampus]:
    with LiveCampus(limited(), enforcement=False) as campus:
        yield campus


def said(net: LiveCampus, host: str, code: str) -> tuple[int, str]:
    done = net[host].popen([sys.executable, "-c", code], text=True)
    out, _ = done.communicate(timeout=60)
    return done.returncode, out


@pytest.mark.kernel
class TestCampus:
    pytestmark = [*kernel, pytest.mark.apart]

    def test_busy_loop_gets_its_share_of_one_processor(self, net: LiveCampus) -> None:
        status, share = said(net, "h1", BUSY)
        assert status == 0
        assert 0.05 <= float(share) <= 0.26

    def test_share_and_processors_change_by_mininets_words_and_hold_for_the_shell(self, net: LiveCampus) -> None:
        h1 = net["h1"]
        try:
            h1.setCPUFrac(0.8 / (os.cpu_count() or 1))
            name, [top] = f"{control_groups.TOP}/{net.id}/h1", control_groups.folders("", ["cpu"])
            quotas = [top / name / file for file in ("cpu.cfs_quota_us", "cpu.max")]
            assert [int(file.read_text().split()[0]) for file in quotas if file.exists()] == [80_000]
            assert f":/{name}" in h1.cmd("cat /proc/self/cgroup")
            h1.setCPUs([0])
            assert said(net, "h1", "import os; print(os.sched_getaffinity(0))") == (0, "{0}\n")
            with pytest.raises(SetupError, match=r"cpuset\.cpus"):
                h1.setCPUs("4000")
        finally:
            h1.limit(LIMITS)

    def test_memory_beyond_the_limit_ends_the_process_of_that_host_alone(self, net: LiveCampus) -> None:
        beside = net["h1"].popen(["sleep", "100"])
        assert said(net, "h1", GREEDY) == (-signal.SIGKILL, "")
        assert said(net, "h2", GREEDY) == (0, f"{300 << 20}\n")
        assert beside.poll() is None
        beside.kill()

    def test_forked_process_is_limited_as_its_host_is(self, net: LiveCampus, tmp_path: Path) -> None:
        seen = tmp_path / "seen"
        net.fork("h1", lambda: seen.write_text(Path("/proc/self/cgroup").read_text()), label="looks").wait(60)
        assert seen.read_text().count(f"/{control_groups.TOP}/{net.id}/h1") == 3

    def test_kernel_has_no_folder_of_a_campus_that_is_killed_once_it_is_cleaned(self, tmp_path: Path) -> None:
        root = Path(__file__).parents[1]
        words = [sys.executable, "-c", OWNER, str(tmp_path)]
        owner = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=root, text=True)
        with owner.stdout:
            campus_id = owner.stdout.readline().strip()
        owner.kill()
        owner.wait()
        folders = control_groups.folders(f"{control_groups.TOP}/{campus_id}")
        assert any(folder.exists() for folder in folders)
        assert clean_up(tmp_path).failed == []
        assert not any(folder.exists() for folder in folders)


def test_limits_are_read_and_written_and_stay_as_they_are_at_any_scale() -> None:
    text = files.dumps(limited())
    assert 'cpu = 0.2, memory = "96 MB", cores = "0"' in text
    assert files.loads(text) == limited()
    assert Scale(bytes=0.01, time=0.1).apply(limited()).host_by_name["h1"].limits == LIMITS


@pytest.mark.parametrize(
    ("wrong", "named"),
    [("cpu = 0.0", "hosts.*.cpu"), ('cores = "0;1"', "hosts.*.cores"), ('memory = "1 kB"', "hosts.*.memory")],
)
def test_limit_that_cannot_be_is_named(wrong: str, named: str) -> None:
    text = files.dumps(small_campus(1)).replace('gpu_model = "gpu"', f'gpu_model = "gpu", {wrong}')
    with pytest.raises(SpecError) as caught:
        files.loads(text)
    assert named in str(caught.value)


def test_mininets_words_are_shares_of_all_processors() -> None:
    topo = Topo()
    topo.addSwitch("s1")
    for name, words in (("h1", {"cpu": 0.25, "cores": [0, 1]}), ("h2", {"cpu": -1}), ("h3", {"cores": 1})):
        topo.addLink(topo.addHost(name, cls=CPULimitedHost, **words), "s1")
    processors = os.cpu_count() or 1
    found = {h.name: h.limits for h in from_mininet(topo).hosts}
    assert found["h1"] == HostLimits(cpu=0.25 * processors, cores="0,1")
    assert (found["h2"], found["h3"]) == (HostLimits(), HostLimits(cores="1"))
    assert CampusTopo(limited()).nodeInfo("h1")["cpu"] == 0.2 / processors
