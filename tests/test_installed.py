"""An installed agent: on a machine of its own, which is a container with systemd in a campus host's network."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.core.model import facts as f
from testbed.emulation.safety.ledger import namespace_pids
from testbed.emulation.safety.living import RunningCampus
from testbed.installed import service
from testbed.installed.agent import KEPT
from tests.live_campus import CLI, Run, command, running

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
# what nspawn's own filter of system calls would refuse
CALLS = "bpf perf_event_open landlock_create_ruleset landlock_add_rule landlock_restrict_self"
BOOTED_S, SOON_S = 20.0, 15.0
COORDINATOR, H1 = "10.1.0.3", "10.1.0.1"
# makes a shell one of the guests
GUEST = f"echo $$ > /sys/fs/cgroup/unified/system.slice/{service.UNIT}/agent/cgroup.procs; "


def knock(address: str, port: int) -> str:
    return f"exec timeout 2 bash -c 'exec 3<>/dev/tcp/{address}/{port}'"


def until(holds, seconds: float = SOON_S) -> None:  # type: ignore[no-untyped-def]
    end_s = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.1)


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

        until(booted, BOOTED_S)
        yield Machine(int(children.read_text()), folder / "upper")


def words_of(run: Run, *words: str) -> str:
    answer = command(*words, "--campus", RunningCampus(run.ledger()[0]).id)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def test_the_unit_exposes_little(tmp_path: Path) -> None:
    path = tmp_path / service.UNIT
    path.write_text(service.unit())
    answer = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=50", "--no-pager", str(path)],
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stdout[-300:] + answer.stderr


@pytest.mark.kernel
@pytest.mark.campus
@pytest.mark.timeout(280)
@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.skipif(shutil.which("systemd-nspawn") is None, reason="no systemd-nspawn: setup-apt.sh tests")
def test_a_machine_is_lent_until_its_owner_comes_and_nothing_is_left_of_the_agent(tmp_path: Path) -> None:
    end, script, campus, job = (tmp_path / each for each in ("end", "commands", "real.toml", "job.toml"))
    script.write_text(f"sh until [ -e {end} ]; do sleep 0.1; done\n")
    campus.write_text(CAMPUS)
    job.write_text('steps = 100000\nstep = "50 ms"\npayload = "4 MB"\n')
    with ExitStack() as stack:
        run = stack.enter_context(running(tmp_path / "out", "up", "--campus", str(campus), "--script", str(script)))
        run.wait_until(lambda: run.count(f.HostJoined) == 1, timeout_s=60.0)
        assert len(run.pids("agent")) == 1, "of h1 alone"
        network = f"/proc/{namespace_pids(RunningCampus(run.ledger()[0]))['h2']}/ns/net"
        real = stack.enter_context(machine(network, "h2", tmp_path / "machine"))
        real.done("systemctl", "start", "systemd-logind")
        before = real.files()
        assert "no session" in real.done(*CLI, "agent", "observe", "--coordinator", COORDINATOR)
        assert real.files() == before

        token = words_of(run, "token", "create", "--host", "h2")
        with ExitStack() as told:
            told.callback(lambda: print(real.run("journalctl", "-u", service.UNIT, "--no-pager", "-o", "cat").stdout))
            real.done(*CLI, "agent", "install", "--token", token, "--coordinator", COORDINATOR)
            run.wait_for(f.HostJoined, host="h2", lent=True)
            assert real.done("stat", "-c", "%a", "/var/lib/reclaimnet-agent", str(KEPT)).split() == ["700", "600"]

            fenced = real.run("runuser", "-u", "nobody", "--", "sh", "-c", knock(COORDINATOR, 710))
            assert "refused" in fenced.stderr

            words_of(run, "reclaim", "h1")
            words_of(run, "submit", str(job))
            run.wait_for(f.JobRunning, host="h2")
            words_of(run, "return", "h1")
            run.wait_for(f.CheckpointCompleted)
            real.done("systemd-run", "--unit=owner", "-p", "PAMName=login", "-p", "User=root", "sleep", "1000")
            run.wait_for(f.HostReclaimed, host="h2")
            run.wait_for(f.JobRunning, host="h1")
            until(lambda: real.run("sh", "-c", GUEST + knock(H1, 720)).returncode != 0)
            assert real.run("sh", "-c", knock(H1, 720)).returncode == 0, "the owner's own connections"
            real.done("systemctl", "stop", "owner")
            run.wait_for(f.HostReturned, host="h2")
            assert real.run("sh", "-c", GUEST + knock(H1, 720)).returncode == 0

            joined = run.count(f.HostJoined)
            real.done("systemctl", "kill", "-s", "KILL", service.UNIT)
            run.wait_until(lambda: run.count(f.HostJoined) > joined)

        real.done(*CLI, "agent", "uninstall")
        assert real.files() == before
        assert real.done("nft", "list", "tables") == ""
        assert real.done("tc", "filter", "show", "dev", "h2-eth0", "egress") == ""
        assert real.done("ls", "/sys/fs/bpf", "/run").find("reclaim") == -1
        assert real.run("systemctl", "cat", service.UNIT).returncode != 0
