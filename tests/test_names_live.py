"""Names of a campus that runs, by commands: an operator from inside its network, another authority, a host that is revoked."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from controller.core.model import facts as f
from tests.live_campus import CLI, Run, live, running, standing
from tests.test_sniffer import SCENARIO
from topologies.presets import three_tier

pytestmark = [*live, pytest.mark.apart, pytest.mark.timeout(150)]
HOSTS = 3


def in_network(run: Run, host: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of another machine: one that has nothing of this campus but a cable."""
    pid = run.networks()[host]
    enter = ["nsenter", f"--net=/proc/{pid}/ns/net"]
    return subprocess.run([*enter, *CLI, *words], capture_output=True, text=True, timeout=100)


def test_operators_join_authorities_change_and_a_revoked_host_is_out_at_once(tmp_path: Path) -> None:
    coordinator = str(three_tier(HOSTS, 3, 1).coordinator.address)
    with standing(tmp_path, "--hosts", str(HOSTS)) as run:
        run.wait_until(lambda: len(run.pids("agent")) == HOSTS + 1)
        run.wait_until_it_answers()
        run.done("submit", str(tmp_path / "job.toml"))
        run.wait_for(f.CheckpointCompleted)
        agents = run.pids("agent")

        token = run.done("token", "create", "--operator", "anna", "--ttl", "1 min")
        folder = tmp_path / "anna"
        joins = ["join", token, coordinator, "--out", str(folder)]
        joined = in_network(run, "h2", *joins)
        assert joined.returncode == 0, joined.stderr
        assert "running" in in_network(run, "h2", "jobs", "--campus", str(folder)).stdout
        twice = in_network(run, "h2", *joins)
        assert twice.returncode != 0
        assert "the token was used" in twice.stderr
        assert len([*folder.iterdir()]) == 4
        assert all(file.stat().st_mode & 0o077 == 0 for file in folder.iterdir())

        run.done("ca", "rotate")
        before = run.count(f.CheckpointCompleted)
        run.wait_until(lambda: run.count(f.CheckpointCompleted) >= before + 3)  # by hosts whose names are new
        assert run.count(f.HostLost) == run.count(f.JobStopped) == 0
        assert run.pids("agent") == agents

        run.done("ca", "revoke", "--operator", "anna")
        assert in_network(run, "h2", "jobs", "--campus", str(folder)).returncode != 0
        busy = run.wait_for(f.JobRunning).host
        run.done("ca", "revoke", "--host", busy)
        run.wait_for(f.HostLost, host=busy)
        run.wait_for(f.PeersRefused)
        revoked = run.wait_for(f.NameChanged, change="revoked")
        assert revoked.name.endswith(f"/host/{busy}")
        assert {lost.host for lost in [run.wait_for(f.HostLost)]} == {busy}


@pytest.mark.long
def test_names_outlive_the_coordinator_that_gave_them(tmp_path: Path) -> None:
    """Another one leads after a rotation and a revocation; it rotates once more, so the first authority is worth nothing."""
    scenario = tmp_path / "overheard.toml"
    scenario.write_text(SCENARIO.replace('transfers = "TRANSFERS"', "standby = true"))
    with running(tmp_path / "out", "run", str(scenario)) as run:

        def goes_on() -> None:
            before = run.count(f.CheckpointCompleted)
            run.wait_until(lambda: run.count(f.CheckpointCompleted) >= before + 2)

        run.wait_until(lambda: len(run.pids("coordinator")) == 2 and run.count(f.JobRunning))
        goes_on()
        idle = next(host for host in ("desk1", "desk2", "desk3") if host != run.wait_for(f.JobRunning).host)
        run.done("ca", "rotate")
        run.done("ca", "revoke", "--host", idle)
        agents = run.pids("agent")
        os.kill(run.pids("coordinator")[0], signal.SIGKILL)
        run.wait_for(f.CoordinatorRestarted)
        goes_on()
        run.wait_until(lambda: any(f"/host/{idle} was revoked" in fact.reason for fact in run.facts(f.PeersRefused)))
        run.done("ca", "rotate")
        goes_on()
        assert {fact.host for fact in run.facts(f.HostLost)} == {idle}
        assert run.count(f.JobStopped) == 0
        assert run.pids("agent") == agents
