"""The main job, live: short runs of the demonstration, undisturbed and disturbed, and one beside its virtual twin."""

import grp
import json
import os
import random
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from controller.core.coordinator import Coordinator
from controller.core.model import facts as f
from controller.persistence.journal import Journal, read_facts
from controller.persistence.recovery import JournalReplay
from experiments.inputs.scenario import demo_scenario
from experiments.inputs.traces import generate
from experiments.results.live_lines import unseen
from experiments.results.takeovers import take_overs
from experiments.worlds.live.operator import JOURNAL
from experiments.worlds.live.run import run_live
from experiments.worlds.live.world import COPY
from tests.etcd_members import needs_etcd
from tests.live_campus import command, leftovers, live, running
from tests.patience import wait_until
from tests.summary_keys import REQUIRED

pytestmark = [*live, pytest.mark.timeout(150)]


def test_demo_keeps_its_promises_and_writes_its_report_whatever_is_stopped_and_killed(tmp_path: Path) -> None:
    """One agent is stopped for two leases; four are killed; the coordinator is, twice, and goes on with its journal."""
    with running(tmp_path, "demo", "--hosts", "10", "--seconds", "20", "--seed", "5") as run:
        run.wait_until_jobs_run()
        stopped = run.pids("agent")[0]
        os.kill(stopped, signal.SIGSTOP)
        time.sleep(6.0)  # two leases
        # the jobs of a stopped agent end with their lease
        run.wait_until(lambda: not [job for server in _children(stopped) for job in _children(server)])
        os.kill(stopped, signal.SIGCONT)
        for _ in range(4):
            os.kill(run.pids("agent")[0], signal.SIGKILL)
            time.sleep(0.5)
        for restarts in (1, 2):
            [coordinator] = run.pids("coordinator")
            joined = run.count(f.HostJoined)
            os.kill(coordinator, signal.SIGKILL)
            run.wait_until(lambda restarts=restarts: run.count(f.CoordinatorRestarted) == restarts)
            run.wait_until(lambda joined=joined: run.count(f.HostJoined) > joined + 2)
        status = run.finish(60)
        text = run.finish_text()
    summary = run.summary()
    assert status == (0 if summary["fidelity"]["valid"] else 3), text
    for group, keys in REQUIRED.items():
        assert keys <= summary[group].keys()
    assert (summary["world"], summary["seed"], summary["ended"]) == ("live", 5, "completed")
    assert summary["scale"] == {"bytes": pytest.approx(1 / 250), "time": pytest.approx(1 / 40)}
    assert summary["invariants_broken"] == []
    assert summary["jobs"]["lost"] == 0
    assert summary["jobs"]["finished"] > 0
    assert summary["jobs"]["on_demand"] > 0
    assert summary["emergencies"]["count"] > 0
    assert summary["checkpoints"]["completed"] > 0
    assert summary["kill_switch"]["connections_tried"] > 0
    assert summary["kill_switch"]["connections_admitted"] == 0
    assert [death["subject"] == "coordinator" for death in summary["deaths"]] == [False] * 4 + [True] * 2
    observed = {seen["where"]: seen for seen in summary["fidelity"]["observed"]}
    assert {"h1", "h6", "the switches", "the machine"} <= observed.keys()
    # a closed host drops what the prober sends to it, at its ingress program
    assert any(seen["dropped"].get("tc ingress", 0) > 0 for seen in observed.values())
    assert all(seen["run_delay_p99_s"] > 0.0 for where, seen in observed.items() if where.startswith("h"))
    facts = [json.loads(line)["fact"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert {"JobSubmitted", "JobFinished", "CheckpointCompleted", "HostReclaimed"} <= set(facts)
    assert facts.count("CoordinatorRestarted") == 2
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert leftovers() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 32 MB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", tmp_path], check=True)
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.mark.long
@pytest.mark.apart
def test_pool_of_agents_comes_back_and_a_coordinator_that_dies_again_and_again_with_its_disk_full(
    small_disk: Path,
) -> None:
    """No job is lost by either: all are in the journal."""
    pools = ["--agents-per-process", "4"]
    with running(small_disk, "demo", "--hosts", "6", "--seconds", "25", "--seed", "6", *pools) as run:
        run.wait_until_jobs_run()
        assert len(run.pids("agents")) == 2  # six volunteers and two hosts that are paid for
        pool = run.pids("agents")[0]
        [server] = _children(pool)
        jobs = _children(server)
        assert jobs
        networks = {Path(f"/proc/{pid}/ns/net").stat().st_ino for pid in (pool, *jobs)}
        assert len(networks) > 1, "jobs are in their own hosts' networks"
        os.kill(pool, signal.SIGKILL)
        for host in ("h1", "h2", "h3", "h4"):
            run.wait_for(f.HostJoined, 2, host=host)
        filler, before = small_disk / "filler", set[int]()
        with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))
        while len(before) < 4:  # whatever the disk does to it, it has died as often
            run.wait_until(lambda: set(run.pids("coordinator")) - before)
            for pid in set(run.pids("coordinator")) - before:
                before.add(pid)
                os.kill(pid, signal.SIGKILL)
        filler.unlink()
        run.wait_until(lambda: run.count(f.CoordinatorRestarted) > 0)
        status = run.finish(60)
        text = run.finish_text()
    summary = run.summary()
    assert status == (0 if summary["fidelity"]["valid"] else 3), text
    assert summary["ended"] == "completed"
    assert summary["deaths"][0]["subject"] == "agents of 4 hosts, h1 to h4"
    assert [death["subject"] for death in summary["deaths"][1:]] >= ["coordinator"] * 3
    assert summary["invariants_broken"] == []
    assert summary["jobs"]["submitted"] > summary["jobs"]["lost"] == 0
    assert summary["jobs"]["finished"] > 0
    assert leftovers() == []


# an interrupt is `test_docs_live`'s
@pytest.mark.long
def test_run_that_is_hung_up_on_still_reports_and_leaves_nothing(tmp_path: Path) -> None:
    with running(tmp_path, "demo", "--hosts", "4", "--seconds", "60") as run:
        run.wait_until_jobs_run()
        run.process.send_signal(signal.SIGHUP)
        assert run.finish(20) == 130
    assert run.summary()["ended"] == "interrupted"
    assert leftovers() == []


@pytest.mark.apart
def test_owners_close_their_hosts_whoever_is_dead_and_nobody_else_does(tmp_path: Path) -> None:
    """Mininet's commands work; a member of the owners' group needs no root, and others are told who may.

    The run is killed in the end: its agents die with it, and `clean` removes what it has left.
    """
    nobody, owners = 65_534, grp.getgrnam("users")
    stranger = {"user": nobody, "group": nobody, "extra_groups": []}
    member = {**stranger, "extra_groups": [owners.gr_gid]}
    over, end = tmp_path / "over", tmp_path / "end"
    waits = f"sh touch {over}; until [ -e {end} ]; do sleep 0.1; done"
    script = _script(tmp_path, "pingall", "h1 ip -4 -brief addr show h1-eth0", waits)
    group = ["--group", owners.gr_name]
    with running(tmp_path, "up", "--hosts", "3", *group, "--script", str(script)) as run:
        run.wait_until(lambda: over.exists() and len(run.pids("agent")) == 4)
        run.wait_until_it_answers()
        if command("--help", **stranger).returncode == 0:  # else its user alone can read the source
            refused = command("reclaim", "h1", **stranger)
            assert refused.returncode == 2
            assert "the switch of h1 is for root and members of the group users only" in refused.stderr
            seen = command("status", **stranger)
            asked = "only root may ask the coordinator" in seen.stdout
            assert (seen.returncode, asked) == (0, True), seen.stderr
            done = command("reclaim", "h1", **member)
            assert (done.returncode, "its agent has obeyed" in done.stdout) == (0, True), done.stderr
            assert "isolate" in command("status", **member).stdout
            assert "lent again" in command("return", "h1", **member).stdout
        processes = {*run.pids("coordinator"), *run.pids("agent")}
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        reclaimed = command("reclaim", "h1")
        assert reclaimed.returncode == 0, reclaimed.stderr
        assert "no agent answered" in reclaimed.stdout
        seen = command("status")
        assert "isolate" in seen.stdout
        assert "the coordinator does not answer" in seen.stdout
        assert "lent again" in command("return", "h1").stdout
        wrong = command("reclaim", "h9")
        assert wrong.returncode == 2
        assert "h9" in wrong.stderr
        for pid in processes:
            os.kill(pid, signal.SIGKILL)
        run.wait_until(lambda: len({*run.pids("coordinator"), *run.pids("agent")} - processes) == len(processes))
        run.wait_until(lambda: " idle" in command("status").stdout)
        agents = run.pids("agent")
        run.process.kill()
        end.touch()
        text = run.finish_text()
        _wait_gone(agents)
        assert leftovers() != []
        cleaned = command("clean")
        assert (cleaned.returncode, "1 campuses cleaned" in cleaned.stdout) == (0, True), cleaned.stdout
        assert leftovers() == []
        assert "0 campuses cleaned, 0 objects" in command("clean").stdout
    assert "0% dropped" in text
    assert "10.1.0.1/8" in text


@pytest.mark.apart
def test_a_command_of_the_shell_ends_with_the_campus_that_is_interrupted(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    script = _script(tmp_path, f"sh sleep 1000 & echo $! > {begun}; wait")
    with running(tmp_path, "up", "--hosts", "2", "--no-agents", "--script", str(script)) as run:
        run.wait_until(lambda: begun.exists() and begun.read_text().endswith("\n"))
        sleeping = os.pidfd_open(int(begun.read_text()))
        try:
            run.process.terminate()
            assert run.process.wait(20) == 130
            assert select.select([sleeping], [], [], 5.0)[0], "it sleeps on"
        finally:
            os.close(sleeping)


def _script(directory: Path, *lines: str) -> Path:
    path = directory / "commands"
    path.write_text("\n".join(lines) + "\n")
    return path


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if b"testbed.workloads" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def _wait_gone(pids: list[int]) -> None:
    """Agents die with the campus."""
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_live_and_virtual_agree_within_a_tenth_on_times_and_a_twentieth_on_rates(tmp_path: Path) -> None:
    with running(tmp_path, "compare", "example:two-worlds") as run:
        status = run.finish(110)
        text = run.finish_text()
    record = json.loads((tmp_path / "compare.json").read_text())
    assert record["jobs"] == 5, text
    assert '"holder":"server"' in (tmp_path / "events.jsonl").read_text()  # the head node has an agent of its own
    assert all(quantity["name"][:30] in text for quantity in record["quantities"])  # a long one is on two lines
    assert all((tmp_path / name).exists() for name in ("report.html", "virtual/report.html", "virtual/events.jsonl"))
    if record["not_to_be_believed"]:
        assert status == 3
        pytest.skip("; ".join(record["not_to_be_believed"]))
    assert status == 0, text
    assert record["near"]
    assert record["same_ways"] == record["jobs"]


@pytest.mark.apart
@needs_etcd
@pytest.mark.parametrize("journal", ["sqlite", pytest.param("etcd", marks=pytest.mark.long)])
def test_a_standby_takes_over_from_a_leader_that_is_killed_twice(tmp_path: Path, journal: str) -> None:
    """No job stops for it, no checkpoint completes twice, and both journals lead to the same facts."""
    demo = demo_scenario(hosts=8, buildings=3, on_demand=1, seconds=18.0, seed=3)
    quiet = replace(demo, owners=replace(demo.owners, hazard_per_s=0.0, script=()))
    scenario = replace(quiet, trust=replace(quiet.trust, standby=True, journal=journal))
    played = run_live(scenario, generate(scenario), tmp_path, unseen, kills=(False, journal == "etcd"))
    taken = list(take_overs(played.facts, played.context.deaths))
    assert [each.subject for each in taken] == ["coordinator", "standby"]
    for each in taken:
        print(each)
        assert each.agents >= 8
    assert [each.stopped for each in taken] == [[], []]
    summary = played.summary()
    assert summary.invariants_broken == []
    completed = [(fact.job, fact.sequence) for _, fact in played.facts if isinstance(fact, f.CheckpointCompleted)]
    assert len(completed) == len(set(completed)) > 0
    if journal == "etcd":
        one, other = (list(read_facts(tmp_path / name)) for name in (JOURNAL, COPY))
        shorter = min(len(one), len(other))
        assert one[:shorter] == other[:shorter]
        assert shorter > 0.9 * max(len(one), len(other))
    for name in (JOURNAL, COPY) if journal == "etcd" else (JOURNAL,):
        with closing(Journal(tmp_path / name)) as whole:
            whole._db.execute("DELETE FROM snapshot")
            real = scenario.played()
            draw = random.Random(f"{real.seed} placement").random
            JournalReplay(whole, Coordinator(real.campus, real.protocol, real.queue, draw)).advance()
    assert leftovers() == []
