"""Jobs of a user's own on a live campus: submitted, followed, moved by a reclaim, their failures explained."""

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import topologies
from controller.core.model import facts as f
from experiments.cli.up import _CommandLine
from tests.emulation_campuses import kernel
from tests.job_desk import needs_criu
from tests.live_campus import CLI, Run, command, running
from tests.test_conventions import completed
from topologies import three_tier

pytestmark = [*kernel, pytest.mark.apart]
EXAMPLES = Path(__file__).parents[1] / "docs/examples"
RAISING = """
from counting import Counting


class Raising(Counting):
    def step(self):
        raise ValueError("[/red] as told")  # no markup of the table that shows it
"""
WIDE_DESK = """
[[hosts]]
name = "desk9"
building = "lab"
gpu_model = "rtx4090"
gpus = 2
link_to = "desks"
rate = "1 Gbit/s"
"""
WIDE_PROGRAM = """#!/bin/sh
echo "has $RECLAIMNET_GPUS"
exec "$(dirname "$0")/adding.sh"
"""
WIDE = 'command = ["./wide.sh"]\ngpus = 2\nsteps = 300\nstep = "50 ms"\npayload = "100 kB"\n'
MOVED = """
command = ["sh", "-c", "n=$RECLAIMNET_ATTEMPT; echo $n > results/$n; echo wrote; test $n = 2 || sleep 100"]
output = "results"
steps = 10
step = "1 s"
payload = "1 kB"
"""
SUBMITTED = ("adding", "failing", "endless", "counting", "raising")


def test_jobs_of_ones_own_are_moved_and_cancelled_and_say_why_they_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell program and a class go on where they were after reclaims with and without notice; another is cancelled."""
    monkeypatch.chdir(tmp_path)  # where the campus's agents look for modules
    for name in ("adding.sh", "counting.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    (tmp_path / "raising.py").write_text(RAISING)
    (tmp_path / "wide.sh").write_text(WIDE_PROGRAM)
    (tmp_path / "wide.sh").chmod(0o755)
    lab = (Path(topologies.__file__).parent / "examples/lab.toml").read_text()
    rented = lab[lab.index('[[hosts]]\nname = "cloud"') : lab.index('[[hosts]]\nname = "coord"')]
    adding = (EXAMPLES / "adding.toml").read_text().replace("200", "120")
    counting = (EXAMPLES / "counting.toml").read_text().replace("200 ms", "120 ms")
    files = {
        "adding": adding,
        "endless": adding.replace("120", "1000000"),
        "failing": adding.replace('"./adding.sh"', '"sh", "-c", "echo wrong >&2; exit 3"'),
        "absent": adding.replace("adding.sh", "nothing.sh"),
        "counting": counting,
        "raising": counting.replace("counting:Counting", "raising:Raising"),
        "broken": 'workload = "synthetic"\nsteps = 3\nstep = "10 ms"\npayload = "1 kB"\n[params]\ntypo = 1\n',
        "commands": "sh sleep 100\n",
        "lab": lab.replace(rented, "") + WIDE_DESK,
        "own": 'name = "own"\ncampus = "lab.toml"\n',
        "wide": WIDE,
        "other/adding": adding.replace("120", "121").replace("./", "../"),
    }
    (tmp_path / "other").mkdir()
    for name, text in files.items():
        (tmp_path / f"{name}.toml").write_text(text)
    with running(tmp_path / "out", "up", "--scenario", "own.toml", "--script", "commands.toml") as run:
        run.wait_until_it_answers()
        check_names_that_the_shell_completes(run)
        for wrong, said in (("absent", "nothing.sh"), ("broken", "params.typo")):
            refused = command("submit", "counting.toml", f"{wrong}.toml")
            assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr
        assert "counting" not in command("jobs").stdout  # with a wrong one beside it, it was not handed over
        watching = subprocess.Popen([*CLI, "events", "--job", "counting"], stdout=subprocess.PIPE, text=True)
        try:
            accepted = command("submit", *(f"{name}.toml" for name in SUBMITTED))
            assert accepted.returncode == 0, accepted.stderr
            run.wait_until(lambda: "step 5\n" in run.log_of("counting"))
            host = run.wait_for(f.JobRunning, job="counting").host
            assert command("reclaim", host).returncode == 0
            assert switch_of(host)["mode"] == "isolate"
            check_what_is_handed_over_twice()
            check_moves_and_cancellation(run)
            followed = command("logs", "counting", "--follow").stdout
        finally:
            watching.terminate()
            told = [json.loads(line) for line in watching.communicate()[0].splitlines()]
        assert "== attempt 1\nbegins\nstep 1\n" in followed
        assert "== attempt 2\n" in followed
        assert followed.endswith("step 50\n")
        ran = {fact["attempt"]: fact["host"] for fact in told if fact["fact"] == "JobRunning"}
        # the first attempt may have begun before the command had connected
        assert ran.get(1, host) == host != ran[2]
        assert "JobFinished" in [fact["fact"] for fact in told]
        assert command("logs", "adding", "--follow").stdout.endswith(f"the sum is {120 * 121 // 2}\n")
        listed = command("jobs").stdout
        column = (line.split("│")[-2] for line in listed.splitlines() if "│" in line)
        why = " ".join(" ".join(column).split())
        assert "finished" in listed
        assert "it ended with exit code 3; its last line: wrong" in why
        assert "[/red] as told" in why
        assert "ValueError: [/red] as told" in command("logs", "raising").stdout
        unknown = command("logs", "nothing")
        assert (unknown.returncode, "see `reclaimnet jobs`): " in unknown.stderr) == (2, True), unknown.stderr
        check_a_job_of_two_gpus(run)
    assert "wrong" in (tmp_path / "out/logs/jobs/failing.1.log").read_text()
    assert (tmp_path / "out/logs/jobs/counting.2.log").read_text().endswith("step 50\n")
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert (summary["jobs"]["finished"], summary["fidelity"]["valid"]) == (2, False)
    assert "counting" in (tmp_path / "out/report.html").read_text()


def switch_of(host: str) -> Any:
    """The kill-switch of a host, as `status` has it."""
    [told] = json.loads(command("status", "--json").stdout)["campuses"]
    return next(each["switch"] for each in told["hosts"] if each["host"] == host)


def check_names_that_the_shell_completes(run: Run) -> None:
    """JSON and completion name what runs."""
    [told] = json.loads(command("status", "--json").stdout)["campuses"]
    assert told["process"] == run.process.pid
    assert switch_of("desk1") == {"mode": "off", "closes_in_s": None, "dropped_packets": 0}
    assert json.loads(command("jobs", "--json").stdout)["campus"] == told["campus"]
    assert completed("reclaim", "desk") == ["desk1", "desk2", "desk3", "desk4", "desk9"]
    assert completed("status", "--campus", "") == [told["campus"]]


def check_a_job_of_two_gpus(run: Run) -> None:
    """It is one process that is told which GPUs it has, and moves to two of another host."""
    for host in ("server", "desk9"):
        command("return", host)
    assert command("submit", "wide.toml").returncode == 0
    first = run.wait_for(f.JobRunning, job="wide", attempt=1).host
    assert command("reclaim", first, "--notice", "20").returncode == 0
    second = run.wait_for(f.JobRunning, job="wide", attempt=2).host
    assert {first, second} == {"desk9", "server"}
    assert "has 0,1" in command("logs", "wide").stdout
    assert command("cancel", "wide").returncode == 0


def check_what_is_handed_over_twice() -> None:
    """Under a name that was asked for nothing is begun anew, and another job is refused; else a new name is made."""
    again = command("submit", "adding.toml", "--name", "adding")
    assert (again.returncode, "nothing is begun anew" in again.stdout) == (0, True), again.stdout
    Path("named.toml").write_text(f'name = "adding"\n{Path("endless.toml").read_text()}')
    taken = command("submit", "failing.toml", "named.toml", "endless.toml")
    assert taken.returncode == 2
    assert "handed over before it: failing_2; not handed over: endless" in taken.stderr.replace("\n", " ")
    finished = command("retry", "adding", "raising")
    assert (finished.returncode, "a job that failed or was cancelled" in finished.stderr) == (2, True), finished.stderr


def test_an_array_of_commands_and_what_is_submitted_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job of an array has its number; one that fails is submitted once more under another name.

    At the prompt a host is reclaimed and lent again, and a job submitted.
    """
    monkeypatch.chdir(tmp_path)
    Path("commands").write_text(
        'submit "b\nreclaim h1  5\nreturn h1\nsubmit --name here -- true\njobs\nreclaim x9\nsh sleep 100\n'
    )
    with running(tmp_path / "out", "up", "--hosts", "3", "--script", "commands") as run:
        run.wait_until_it_answers()
        check_an_array(run)
        run.wait_for(f.JobFinished, job="here")
        said = " ".join(run.finish_text().split())
    told = ("h1 is yours in 5 s", "h1 is lent again", "here is in the journal of campus", "┃ attempt", "HOST = 'x9'")
    assert [words for words in told if words not in said] == [], said


def test_the_prompt_completes_hosts_that_have_an_owner() -> None:
    prompt: Any = SimpleNamespace(mn=SimpleNamespace(spec=three_tier(3, 1, 1)))
    assert _CommandLine.complete_return(prompt, "h") == ["h1", "h2", "h3"]


def check_an_array(run: Run) -> None:
    script = 'echo "is $RECLAIMNET_INDEX in $PWD"; test "$RECLAIMNET_INDEX" != 2'
    options = ("--name", "each", "--count", "3", "--set", "steps=1", "--set", "step=10 ms")
    assert command("submit", *options, "--", "sh", "-c", script).returncode == 0
    run.wait_for(f.JobFinished, 2)
    run.wait_for(f.JobFailed, job="each-2")
    for number in (1, 2, 3):
        said = (run.out / f"logs/jobs/each-{number}.1.log").read_text()
        assert said.startswith(f"is {number} in {Path.cwd()}\n")
    refused = command("retry", "each-2", "each-1")
    assert (refused.returncode, "and it is finished" in " ".join(refused.stderr.split())) == (2, True), refused.stderr
    again = command("retry", "each-2")
    assert (again.returncode, "each-2_2 is each-2 once more" in again.stdout) == (0, True), again.stderr
    run.wait_for(f.JobFailed, job="each-2_2")
    assert "== attempt 1\nis 2 in" in command("logs", "each-2", "--attempt", "1").stdout
    Path("moved.toml").write_text(MOVED)
    assert command("submit", "moved.toml").returncode == 0
    run.wait_until((run.out / "logs/jobs/moved.1.log").exists)
    assert command("reclaim", run.wait_for(f.JobRunning, job="moved").host).returncode == 0
    run.wait_until(Path("results/moved").exists)
    assert [Path(f"results/moved/{n}").read_text() for n in (1, 2)] == ["1\n", "2\n"]
    absent = command("logs", "each-1", "--attempt", "7")
    assert (absent.returncode, "that wrote something: 1" in " ".join(absent.stderr.split())) == (2, True), absent.stderr


def check_moves_and_cancellation(run: Run) -> None:
    """The endless job is moved twice, with notice and without, and cancelled on its third host."""
    run.wait_until(lambda: "step 20:" in run.log_of("endless"))
    first = host_of("endless")
    assert command("reclaim", first, "--notice", "5").returncode == 0
    second = run.wait_for(f.JobRunning, job="endless", attempt=2).host
    assert command("return", first).returncode == 0
    assert command("reclaim", second).returncode == 0
    endless = run.wait_for(f.JobRunning, job="endless", attempt=3).host
    assert host_of("endless") == endless
    cancelled = command("cancel", "endless", "nothing", "failing")
    assert cancelled.returncode == 2
    assert f"endless is being cancelled: {endless} ends its process" in cancelled.stdout
    assert "no job of this name was submitted" in cancelled.stderr
    assert "it is over: failed" in cancelled.stderr
    run.wait_for(f.JobCancelled, job="endless")
    assert "cancelled" in command("jobs").stdout
    assert "endless is already cancelled" in command("cancel", "endless").stdout
    followed = command("logs", "endless", "--follow").stdout
    begins = [int(line.split()[-1]) for line in followed.splitlines() if line.startswith("begins at")]
    assert begins[0] == 0
    assert sorted(begins) == begins
    assert begins[-1] > 0


def host_of(job: str) -> str:
    """Where it is, as `jobs` says."""
    line = next((line for line in command("jobs").stdout.splitlines() if f" {job} " in line), "")
    return line.split()[5] if len(line.split()) > 5 else ""


@needs_criu
def test_a_program_that_knows_nothing_of_checkpoints_outlives_a_reclaim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES)
    script = tmp_path / "commands"
    script.write_text("sh sleep 100\n")
    with running(tmp_path / "out", "up", "--hosts", "3", "--script", str(script)) as run:
        run.wait_until_it_answers()
        assert command("submit", "knows_nothing.toml").returncode == 0
        run.wait_until(lambda: "up to 20000\n" in run.log_of("knows_nothing"))
        host = next(line for line in command("jobs").stdout.splitlines() if "knows" in line).split()[5]
        assert command("reclaim", host, "--notice", "15").returncode == 0
        followed = command("logs", "knows_nothing", "--follow").stdout
    assert "== attempt 2\n" in followed
    primes = [line for line in followed.splitlines() if "primes up to" in line]
    assert [line.split()[-1] for line in primes] == [str(n) for n in range(1000, 100_000, 1000)]  # each once
    assert followed.endswith("in all 9592\n")


def test_the_first_job_of_the_page_goes_on_from_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of docs/own_jobs.md as they are: a reclaim takes half of the work at most."""
    monkeypatch.chdir(EXAMPLES)
    over = tmp_path / "over"
    (tmp_path / "commands").write_text(f"sh until [ -e {over} ]; do sleep 0.1; done\n")
    with running(tmp_path / "out", "up", "--hosts", "4", "--script", str(tmp_path / "commands")) as run:
        run.wait_until_it_answers()
        assert command("submit", "counting.toml").returncode == 0
        run.wait_until(lambda: "step 20\n" in run.log_of("counting"))
        assert command("reclaim", run.wait_for(f.JobRunning, job="counting").host).returncode == 0
        followed = command("logs", "counting", "--follow").stdout
        over.touch()
        assert run.finish() == 3  # nothing judges whether the machine kept up
    before, _, after = followed.partition("== attempt 2\n")
    done = before.count("\nstep ")
    assert int(after.removeprefix("goes on after step ").split()[0]) >= done / 2 - 2, followed
    assert followed.endswith("step 50\n")
