"""A campus over several machines: which part stands where, and trunks between two namespaces that stand for machines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.emulation.campus import LiveCampus
from testbed.emulation.description.plan import plan
from testbed.errors import SetupError, SpecError
from tests.doc_pages import blocks
from tests.emulation_campuses import kernel
from tests.patience import wait_until
from topologies import files

HOSTS = """
name = "two"
buildings = ["north", "south"]
switches = [
  { name = "core", tier = "core" },
  { name = "n1", tier = "access", building = "north", link_to = "core", rate = "1 Gbit/s" },
  { name = "s1", tier = "access", building = "south", link_to = "core", rate = "200 Mbit/s" },
]
hosts = [
  { name = "h1", building = "north", gpu_model = "gpu", link_to = "n1", rate = "1 Gbit/s", address = "10.0.1.1" },
  { name = "h2", building = "south", gpu_model = "gpu", link_to = "s1", rate = "1 Gbit/s", address = "10.2.0.1" },
  { name = "h3", building = "south", gpu_model = "gpu", link_to = "s1", rate = "1 Gbit/s", address = "10.2.0.2" },
  { name = "head", building = "north", role = "coordinator", link_to = "n1", rate = "1 Gbit/s", address = "10.0.0.1" },
]

[gpu_models.gpu]
memory = "24 GB"
compute_capability = 8.6
"""
PAGE = "docs/several_machines.md"
[MACHINES], [BUILDS] = (blocks(PAGE, language) for language in ("toml", "python"))
TWO = HOSTS + MACHINES.text
SCENARIO = """
name = "two-machines"
seed = 1
duration = "6 s"
campus = "two.toml"

[protocol]
control_period = "0.5 s"
lease = "3 s"
"""
JOB = """
name = "crossing"
payload = "2 MB"
step = "20 ms"
steps = 800
"""
# the clock of a machine that is ahead; what it starts has it
AHEAD = """
import os, sys
from testbed import linux
linux.unshare(0x80)  # CLONE_NEWTIME
with open("/proc/self/timens_offsets", "w") as offsets:
    offsets.write("monotonic 0 80000000")
os.execvp(sys.argv[1], sys.argv[1:])
"""
CLI = [sys.executable, "-m", "experiments.cli"]
IN_NAMESPACE = ["unshare", "--net", "sh", "-c", 'echo "$$"; read -r go; exec "$@"', "sh"]
PART = """
import json, sys
from testbed import linux
linux.unshare(linux.CLONE_NEWNET)
print(json.dumps("ready"), flush=True)
sys.stdin.readline()
from testbed.emulation.campus import LiveCampus
from testbed.errors import TestbedError
try:
    with LiveCampus(sys.argv[1], machine=sys.argv[2]) as net:
        print(json.dumps(net.id), flush=True)
        for line in sys.stdin:
            host, _, command = line.strip().partition(" ")
            print(json.dumps(net[host].cmd(command)), flush=True)
except TestbedError as error:
    print(json.dumps(str(error)), flush=True)
"""


class Part:
    """A process in a network namespace of its own, as on a machine; it builds its part when told to."""

    def __init__(self, campus: Path, machine: str) -> None:
        command = [sys.executable, "-c", PART, str(campus), machine]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.read() == "ready"

    def tell(self, words: str) -> None:
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def read(self) -> str:
        return json.loads(self.process.stdout.readline())

    def cmd(self, words: str) -> str:
        self.tell(words)
        return self.read()

    def end(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()


@contextmanager
def two_machines(tmp_path: Path, mtu: int = 1600) -> Iterator[tuple[Part, Part]]:
    campus = tmp_path / "two.toml"
    campus.write_text(TWO)
    with ExitStack() as last:
        parts = []
        for machine in ("m1", "m2"):
            parts.append(Part(campus, machine))
            last.callback(parts[-1].end)
        join(*(part.process.pid for part in parts), mtu)
        yield parts[0], parts[1]


def join(first: int, second: int, mtu: int = 1600) -> None:
    """Put a cable between the namespaces of two processes."""
    add = f"ip link add u1 mtu {mtu} type veth peer name u2 mtu {mtu} netns {second}"
    inside(first, f"{add}; ip addr add 192.168.77.1/24 dev u1; ip link set u1 up")
    inside(second, "ip addr add 192.168.77.2/24 dev u2; ip link set u2 up")


def inside(pid: int, script: str) -> None:
    """Run a script in the namespace of a process."""
    subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", "sh", "-ec", script], check=True, timeout=20)


def test_each_machine_plans_its_part_and_both_ends_of_a_trunk_between_them_agree() -> None:
    whole = plan(files.loads(TWO))
    north, south = whole.part("m1"), whole.part("m2")
    assert list(north.host_cables) == ["h1", "head"]
    assert list(south.host_cables) == ["h2", "h3"]
    assert sorted([*north.bridges, *south.bridges]) == ["core", "n1", "s1"]
    assert [t.link.a for t in (*north.trunks, *south.trunks)] == ["n1"]
    [a], [b] = north.tunnels, south.tunnels
    assert (a.number, a.here, a.there) == (b.number, b.there, b.here)
    assert str(a.here) == whole.spec.machines[0].address
    assert (a.end.node, b.end.node) == ("core", "s1")
    ends = {**north.fabric_ends, **south.fabric_ends}
    assert ends == whole.fabric_ends  # the same names, numbers, addresses and shapes as on one machine
    assert files.loads(files.dumps(whole.spec)) == whole.spec


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ('buildings = ["south"]', "buildings = []\n", "machines"),
        ('buildings = ["south"]', 'buildings = ["north", "south"]\n', "each only once"),
        ("192.168.77.2", "192.168.77.1", "each only once"),
        ("192.168.77.2", "nowhere", "an IPv4 address"),
        ('rate = "200 Mbit/s"', 'rate = "200 Mbit/s", delay = "5 ms"', "between machines"),
        ('name = "h3", building = "south"', 'name = "h3", building = "north"', "the machine of its switch"),
        ('name = "two"', 'name = "two"\nfabric = "openvswitch"', 'fabric = "bridge"'),
    ],
)
def test_what_cannot_be_parted_is_refused(old: str, new: str, wrong: str) -> None:
    assert old in TWO
    with pytest.raises(SpecError, match=wrong):
        files.loads(TWO.replace(old, new))


def test_a_part_is_named_where_a_campus_has_machines_and_nowhere_else() -> None:
    with pytest.raises(SetupError, match="stands on 2 machines"):
        LiveCampus(files.loads(TWO))
    with pytest.raises(SpecError, match=r"'m1', 'm2'"):
        LiveCampus(files.loads(TWO), machine="m3")
    with pytest.raises(SpecError, match=r"names no \[machines\]"):
        LiveCampus(files.campus54(), machine="m1")


class TestKernel:
    pytestmark = [*kernel, pytest.mark.apart]

    def test_hosts_of_two_machines_reach_one_another_at_the_trunks_rate(self, tmp_path: Path) -> None:
        with two_machines(tmp_path) as (north, south):
            for part in (north, south):
                part.tell("build")
            campuses = [part.read() for part in (north, south)]
            assert len(set(campuses)) == 2
            assert "0% packet loss" in north.cmd("h1 ping -c 3 -i 0.2 10.2.0.1")
            assert "0% packet loss" in south.cmd("h3 ping -c 3 -i 0.2 10.0.0.1")
            server = "import socket; s = socket.create_server(('', 7001)); c = s.accept()[0]"
            counts = "import time; c.recv(1); t = time.monotonic(); n = 0"
            loop = "exec('while (p := len(c.recv(1 << 20))): n += p')"
            says = "print(round(8e-6 * n / (time.monotonic() - t), 1))"
            south.tell(f'h2 {sys.executable} -c "{server}; {counts}; {loop}; {says}"')
            client = "import socket, time; time.sleep(1); s = socket.create_connection(('10.2.0.1', 7001))"
            sends = "t = time.monotonic(); exec('while time.monotonic() < t + 2: s.sendall(bytes(65536))')"
            north.cmd(f'h1 {sys.executable} -c "{client}; {sends}"')
            mbit_per_s = float(south.read())
            assert 150.0 < mbit_per_s <= 200.0, mbit_per_s
            # an address that is not the host's own is refused at its switch, as on one machine
            north.cmd("h1 ip addr add 10.0.0.99/8 dev h1-eth0")
            assert "100% packet loss" in north.cmd("h1 ping -c 2 -i 0.2 -W 1 -I 10.0.0.99 10.2.0.1")

    @pytest.mark.parametrize(
        ("mtu", "address", "wrong"),
        [
            (1500, "192.168.77.1", "MTU of 1500: trunks to other machines need 1550"),
            (1600, "192.168.77.9", "no interface"),
        ],
    )
    def test_a_machine_that_cannot_carry_its_part_says_why(
        self, tmp_path: Path, mtu: int, address: str, wrong: str
    ) -> None:
        with two_machines(tmp_path, mtu) as (north, _):
            if address != "192.168.77.1":
                inside(north.process.pid, f"ip addr del 192.168.77.1/24 dev u1; ip addr add {address}/24 dev u1")
            north.tell("build")
            assert wrong in north.read()

    def test_what_the_page_has_is_a_part(self, tmp_path: Path) -> None:
        with two_machines(tmp_path) as (north, south):
            south.tell("build")
            assert south.read()
            command = ["nsenter", f"--net=/proc/{north.process.pid}/ns/net", sys.executable, "-c", BUILDS.text]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=True)
            assert "0% packet loss" in done.stdout

    def test_a_killed_part_leaves_nothing(self, tmp_path: Path) -> None:
        with two_machines(tmp_path) as (north, south):
            for part in (north, south):
                part.tell("build")
            campus = [part.read() for part in (north, south)][1]
            south.process.kill()
            south.process.wait()
            subprocess.run([sys.executable, "-m", "experiments.cli", "clean"], check=True, timeout=60)
            assert not (Path("/run/reclaimnet") / campus).exists()
            assert not (Path("/sys/fs/bpf/reclaimnet") / campus).exists()
            assert "0% packet loss" in north.cmd("h1 ping -c 2 -i 0.2 10.0.0.1")

    @pytest.mark.campus
    @pytest.mark.extra
    @pytest.mark.long
    @pytest.mark.timeout(600)
    def test_what_the_page_types_runs_a_scenario_and_carries_jobs_over_machines_of_which_one_dies(
        self, tmp_path: Path
    ) -> None:
        pytest.importorskip("distributed")
        certificates, commands = (block.text.replace("SCHEDULER", "192.168.77.1") for block in blocks(PAGE, "sh"))
        scheduler, worker, run, up = map(str.split, commands.splitlines())
        [tls] = (block.text.replace("/etc/dask", str(tmp_path)) for block in blocks(PAGE, "yaml"))
        for name, text in (("two.toml", TWO), ("run.toml", SCENARIO), ("job.toml", JOB), ("tls.yaml", tls)):
            (tmp_path / name).write_text(text)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "DASK_CONFIG": str(tmp_path)}
        subprocess.run(["sh", "-ec", certificates], cwd=tmp_path, check=True, timeout=60, capture_output=True)
        with ExitStack() as last:

            def begun(words: list[str], **more: Any) -> subprocess.Popen[str]:
                pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
                process = subprocess.Popen(words, cwd=tmp_path, text=True, **{"env": env, **pipes, **more})
                last.callback(process.wait, 60)
                last.callback(process.terminate)
                return process

            ahead = [sys.executable, "-c", AHEAD, *worker]
            machines = [begun([*IN_NAMESPACE, *words]) for words in (worker, ahead)]
            pids = [int(machine.stdout.readline()) for machine in machines]
            join(*pids)
            inside(pids[0], "ip link set lo up")
            there = ["nsenter", f"--net=/proc/{pids[0]}/ns/net"]
            begun([*there, *scheduler, "--no-dashboard"])
            begun(["nsenter", f"--net=/proc/{pids[1]}/ns/net", "sleep", "600"])  # the cable outlives the machine
            for machine in machines:
                machine.stdin.write("go\n")
                machine.stdin.flush()
            log = (tmp_path / "run.log").open("w+")
            played = begun([*there, *run, "--out", "played"], stdout=log, stderr=subprocess.STDOUT)
            assert played.wait(200) in (0, 3), log.seek(0) or log.read()  # 3: a busy machine
            told = json.loads((tmp_path / "played/summary.json").read_text())["fidelity"]["figures"]
            assert told["clock_m2_offset_s"] == pytest.approx(0.08, abs=told["clock_m2_error_s"])
            assert told["clock_m2_error_s"] < 0.04, "it is not shown"

            stands = begun([*there, *up, "--out", "up"])
            assert "stands on m1, m2" in stands.stdout.readline()

            def answer(line: str) -> str:
                stands.stdin.write(f"{line}\nh1 echo that was all\n")
                stands.stdin.flush()
                found = ""
                while (read := stands.stdout.readline()) != "that was all\n":
                    assert read, found
                    found += read
                return found

            assert "0% packet loss" in answer("h1 ping -c 2 -i 0.2 h3")
            places = {name: place for place, names in (("m1", ["h1"]), ("m2", ["h2", "h3"])) for name in names}
            wait_until(lambda: answer("status").count(" idle ") == 3)
            assert "is in the journal" in answer("submit job.toml")
            been: list[str] = []

            def runs_elsewhere() -> bool:
                [job] = json.loads(answer("jobs --json"))["jobs"] or [{"phase": "", "host": ""}]
                if job["phase"] == "running" and job["host"] not in been[-1:]:
                    been.append(job["host"])
                    return True
                return False

            wait_until(runs_elsewhere)
            while len({places[host] for host in been}) < 2 or places[been[-1]] == "m1":
                assert "is yours" in answer(f"reclaim {been[-1]} 3")
                wait_until(runs_elsewhere)
            # and the machine dies where it is now: what the other has of it goes on there
            answer("return h1")
            os.killpg(machines[1].pid, signal.SIGKILL)
            assert "machine m2, with its hosts: its worker was lost" in answer("h1 sleep 1") + answer("reclaim h2")
            wait_until(runs_elsewhere)
            assert been[-1] == "h1"
            wait_until(lambda: [job["phase"] for job in json.loads(answer("jobs --json"))["ended"]] == ["finished"])
            os.killpg(stands.pid, signal.SIGINT)
            assert stands.wait(60) == 130
            assert {path.name for path in (tmp_path / "up").iterdir()} >= {"journal.sqlite", "logs", "report.html"}
            subprocess.run([*CLI, "clean"], check=True, timeout=60)
            done = subprocess.run([*CLI, "status", "--json"], capture_output=True, text=True, timeout=60, check=False)
            assert '"two"' not in done.stdout
