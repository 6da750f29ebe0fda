"""An installed agent, and an installed coordinator: each on a machine of its own, which is a container with systemd."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controller.core.model import facts as f
from controller.persistence.etcd import PROGRAM, log_credentials, member
from experiments.inputs.scenario import Scenario, Trust
from experiments.worlds.live.installed import AUTHORITY, install
from experiments.worlds.live.installed import SERVICE as COORDINATING
from experiments.worlds.live.operator import JOURNAL
from testbed.errors import SetupError
from testbed.installed import unit
from testbed.installed.agent import SERVICE as AGENT
from testbed.installed.unit import Service
from tests.live_campus import CLI, LASTING_JOB, standing
from tests.patience import wait_until
from topologies.errors import SpecError
from topologies.files import loads

CAMPUS = """
name = "real"
buildings = ["lab"]
[gpu_models.one]
memory = "24 GB"
compute_capability = 8.9
[[switches]]
name = "s1"
tier = "core"
[[hosts]]
name = "h1"
building = "lab"
gpu_model = "one"
link_to = "s1"
rate = "1 Gbit/s"
[[hosts]]
name = "h2"
own_agent = true
building = "lab"
gpu_model = "one"
link_to = "s1"
rate = "1 Gbit/s"
[[hosts]]
name = "coord"
role = "coordinator"
building = "lab"
link_to = "s1"
rate = "1 Gbit/s"
"""
COORDINATED = CAMPUS.replace('name = "h1"', 'name = "h1"\nown_agent = true')
# what nspawn's own filter of system calls would refuse
CALLS = "bpf perf_event_open landlock_create_ruleset landlock_add_rule landlock_restrict_self"
COORDINATOR, H1 = "10.1.0.3", "10.1.0.1"
# makes a shell one of the guests
GUEST = f"echo $$ > /sys/fs/cgroup/unified/system.slice/{AGENT.unit}/agent/cgroup.procs; "


def knock(address: str, port: int) -> str:
    return f"exec timeout 2 bash -c 'exec 3<>/dev/tcp/{address}/{port}'"


@dataclass
class Machine:
    """A booted container: `leader` is its systemd, `upper` has what differs from this machine's files."""

    leader: int
    upper: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", "-t", str(self.leader), "-m", "-p", "-u", "-i", "-n", "-C", "--wd=/"]
        return subprocess.run([*enter, *words], capture_output=True, text=True, timeout=60)

    def done(self, *words: str) -> str:
        answer = self.run(*words)
        assert answer.returncode == 0, f"{words}: {answer.stdout}{answer.stderr}"
        return answer.stdout.strip()

    def write(self, path: str | Path, content: bytes | str) -> None:
        text = content if isinstance(content, str) else content.decode()
        self.done("sh", "-c", 'umask 077; printf %s "$1" > "$2"', "sh", text, str(path))

    def jobs(self) -> dict[str, list[dict[str, Any]]]:
        """What its coordinator has of jobs, once that answers."""
        return json.loads(self.done(*CLI, "jobs", "--json"))  # type: ignore[no-any-return]

    def files(self) -> set[str]:
        """What differs from this machine's files: all but byte code, logs, and folders that are here as well."""
        found = (path for path in self.upper.rglob("*") if not path.match("*.pyc") and path.name != "__pycache__")
        names = {str(path.relative_to(self.upper)): path for path in found}
        known = {name for name, path in names.items() if path.is_dir() and Path("/", name).is_dir()}
        return {name for name in names.keys() - known if not name.startswith(("var/log/", "run/"))}


@contextmanager
def machine(network: str, name: str, folder: Path) -> Iterator[Machine]:
    """Boot this machine's system in that network, over an empty layer."""
    for each in ("upper", "work", "root"):
        (folder / each).mkdir(parents=True)
    layers = f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work"
    root = folder / "root"
    with ExitStack() as stack:
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, root], check=True)
        stack.callback(subprocess.run, ["umount", "-R", root], check=True)
        log = stack.enter_context((folder / "boot.log").open("w"))
        words = ["systemd-nspawn", "--quiet", "--keep-unit", "--register=no", f"--directory={root}"]
        words += [f"--machine={name}", f"--network-namespace-path={network}", "--capability=all"]
        words += [f"--system-call-filter={CALLS}", "--boot", "systemd.unit=basic.target"]
        nspawn = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        stack.callback(nspawn.wait, 20)
        children = Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children")
        stack.callback(lambda: os.kill(int(children.read_text()), signal.SIGKILL))

        def booted() -> Machine | None:
            leader = children.read_text()
            found = Machine(int(leader or 0), folder / "upper")
            return found if leader and found.run("systemctl", "is-active", "basic.target").returncode == 0 else None

        yield wait_until(booted)


def in_container(test: Any) -> Any:
    """Mark a test that starts a container."""
    lacks = shutil.which("systemd-nspawn") is None
    for mark in (
        *(pytest.mark.kernel, pytest.mark.campus, pytest.mark.timeout(280)),
        pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
        pytest.mark.skipif(lacks, reason="no systemd-nspawn: setup-apt.sh tests"),
    ):
        test = mark(test)
    return test


@pytest.mark.parametrize(("service", "exposure"), [(AGENT, 50), (COORDINATING, 25)], ids=["agent", "coordinator"])
def test_the_unit_exposes_little(service: Service, exposure: int, tmp_path: Path) -> None:
    path = tmp_path / service.unit
    path.write_text(service.text())
    answer = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={exposure}", "--no-pager", str(path)],
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stdout[-300:] + answer.stderr


@pytest.mark.parametrize("service", [AGENT, COORDINATING], ids=["agent", "coordinator"])
def test_the_unit_begins_a_python_whose_folder_has_a_space_and_a_percent_sign(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "100%c tools" / "python3"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    path = tmp_path / service.unit
    path.write_text(service.text())
    answer = subprocess.run(["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True)
    assert (answer.returncode, answer.stderr) == (0, "")


@in_container
def test_a_machine_is_lent_until_its_owner_comes_and_nothing_is_left_of_the_agent(tmp_path: Path) -> None:
    (campus := tmp_path / "real.toml").write_text(CAMPUS)
    with ExitStack() as stack:
        run = stack.enter_context(standing(tmp_path, "--campus", str(campus)))
        run.wait_until(lambda: run.count(f.HostJoined) == 1, timeout_s=60.0)
        assert len(run.pids("agent")) == 1, "of h1 alone"
        network = f"/proc/{run.networks()['h2']}/ns/net"
        real = stack.enter_context(machine(network, "h2", tmp_path / "machine"))
        real.done("systemctl", "start", "systemd-logind")
        before = real.files()
        assert "no session" in real.done(*CLI, "agent", "observe", "--coordinator", COORDINATOR)
        assert real.files() == before

        token = run.done("token", "create", "--host", "h2")
        with ExitStack() as told:
            told.callback(lambda: print(real.run("journalctl", "-u", AGENT.unit, "--no-pager", "-o", "cat").stdout))
            real.done(*CLI, "agent", "install", "--token", token, "--coordinator", COORDINATOR)
            run.wait_for(f.HostJoined, host="h2", lent=True)
            assert real.done("stat", "-c", "%a", "/var/lib/reclaimnet-agent", str(AGENT.kept)).split() == ["700", "600"]

            fenced = real.run("runuser", "-u", "nobody", "--", "sh", "-c", knock(COORDINATOR, 710))
            assert "refused" in fenced.stderr

            run.done("reclaim", "h1")
            run.done("submit", str(tmp_path / "job.toml"))
            run.wait_for(f.JobRunning, host="h2")
            run.done("return", "h1")
            run.wait_for(f.CheckpointCompleted)
            real.done("systemd-run", "--unit=owner", "-p", "PAMName=login", "-p", "User=root", "sleep", "1000")
            run.wait_for(f.HostReclaimed, host="h2")
            run.wait_for(f.JobRunning, host="h1")
            wait_until(lambda: real.run("sh", "-c", GUEST + knock(H1, 720)).returncode != 0)
            assert real.run("sh", "-c", knock(H1, 720)).returncode == 0, "the owner's own connections"
            real.done("systemctl", "stop", "owner")
            run.wait_for(f.HostReturned, host="h2")
            assert real.run("sh", "-c", GUEST + knock(H1, 720)).returncode == 0

            joined = run.count(f.HostJoined)
            real.done("systemctl", "kill", "-s", "KILL", AGENT.unit)
            run.wait_until(lambda: run.count(f.HostJoined) > joined)

        real.done(*CLI, "agent", "uninstall")
        assert real.files() == before
        assert real.done("nft", "list", "tables") == ""
        assert real.done("tc", "filter", "show", "dev", "h2-eth0", "egress") == ""
        assert real.done("ls", "/sys/fs/bpf", "/run").find("reclaim") == -1
        assert real.run("systemctl", "cat", AGENT.unit).returncode != 0


@pytest.mark.parametrize(
    ("campus", "trust", "etcd", "wrong"),
    [
        (CAMPUS, Trust(), [], "hosts.h1.own_agent"),
        (COORDINATED, Trust(standby=True), [], "trust.standby"),
        (COORDINATED, Trust(journal="etcd"), [], "--etcd"),
        (COORDINATED, Trust(), ["10.1.0.9:0"], "ADDRESS:PORT"),
        (COORDINATED, Trust(), [], COORDINATOR),
    ],
)
def test_what_cannot_be_coordinated_here_is_refused(campus: str, trust: Trust, etcd: list[str], wrong: str) -> None:
    with pytest.raises((SpecError, SetupError), match=wrong):
        install(Scenario("real", loads(campus), trust=trust), Path("ca.pem"), etcd, ())


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[Machine]:
    """A machine with the coordinator's address and no cable."""
    words = f"ip link set lo up && ip address add {COORDINATOR}/8 dev lo && echo && exec sleep 1000"
    with subprocess.Popen(["unshare", "--net", "sh", "-c", words], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline()
            with machine(f"/proc/{holder.pid}/ns/net", "coord", tmp_path / "machine") as real:
                yield real
                print(real.run("journalctl", "-u", COORDINATING.unit, "--no-pager", "-o", "cat").stdout)
        finally:
            holder.kill()


@pytest.mark.skipif(shutil.which(PROGRAM) is None, reason="no etcd: setup-apt.sh tests")
@in_container
def test_a_machine_coordinates_others_and_nothing_is_left_of_the_coordinator(lonely: Machine) -> None:
    real = lonely
    real.done("systemctl", "start", "systemd-logind")  # which an agent asks
    before = real.files()
    campus, job, ca, etcd = (Path("/root", each) for each in ("real.toml", "job.toml", "ca.pem", "etcd.pem"))
    real.write(campus, COORDINATED)
    real.write(job, LASTING_JOB)
    proof = log_credentials()
    files = [etcd.with_suffix(each) for each in (".ca", ".certificate", ".key")]
    for file, content in zip(files, (proof.trusted, proof.certificate, proof.key), strict=True):
        real.write(file, content)
    real.write(etcd, proof.key + proof.certificate)
    real.done("systemd-run", "--unit=lines", *member(0, (2379, 2380), Path("/root/etcd"), (etcd, files[0])))
    real.done(*CLI, "ca", "init", str(ca), "real")
    words = ("--authority", str(ca), "--etcd", "127.0.0.1:2379", "--etcd-files", *map(str, files))
    real.done(*CLI, "coordinator", "install", str(campus), *words)
    kept = real.done("stat", "-c", "%a", *map(str, (COORDINATING.state, COORDINATING.kept, AUTHORITY)))
    assert kept.split() == ["700", "600", "600"]

    token = real.done(*CLI, "token", "create", "--host", "h2")
    real.done(*CLI, "agent", "install", "--token", token, "--coordinator", COORDINATOR)
    real.done(*CLI, "submit", str(job))
    wait_until(lambda: [each["host"] for each in real.jobs()["jobs"] if each["phase"] == "running"] == ["h2"])
    real.done("systemctl", "kill", "-s", "KILL", COORDINATING.unit)
    shown = ("systemctl", "show", "-P", "NRestarts", "-P", "ActiveState", COORDINATING.unit)
    wait_until(lambda: set(real.done(*shown).split()) == {"1", "active"})
    [found] = real.jobs()["jobs"]
    wait_until(lambda: real.jobs()["jobs"][0]["step"] > found["step"])
    assert (found["job"], found["attempt"]) == ("job", 1), "it went on meanwhile"
    real.done(*CLI, "cancel", "job")
    real.done("systemctl", "stop", COORDINATING.unit)
    real.done("sh", "-c", f"rm {COORDINATING.state / JOURNAL}*")
    real.done("systemctl", "start", COORDINATING.unit)
    assert [each["phase"] for each in real.jobs()["ended"]] == ["cancelled"], "as etcd has it"

    real.done(*CLI, "agent", "uninstall")
    real.done(*CLI, "coordinator", "uninstall")
    real.done("systemctl", "stop", "lines")
    real.done("sh", "-c", "rm -r /root/*.toml /root/ca.pem /root/etcd*")
    assert real.files() == before
    assert real.done("ls", "/run").find("reclaim") == -1
    assert real.run("systemctl", "cat", COORDINATING.unit).returncode != 0


@pytest.mark.parametrize(("mode", "owner"), [(0o775, 0), (0o757, 0), (0o755, 65534)])
def test_what_others_can_write_becomes_no_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, owner: int
) -> None:
    place = tmp_path / "program"
    place.mkdir()
    place.chmod(mode)
    monkeypatch.setattr(unit, "HIDDEN", ())
    monkeypatch.setattr(unit, "ROOT", place)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = place.stat()
    seen = os.stat_result((*found[:4], owner, *found[5:10]))
    monkeypatch.setattr(Path, "stat", lambda path: seen)
    with pytest.raises(SetupError, match=rf"others than root can write in {place}"):
        AGENT.check()
