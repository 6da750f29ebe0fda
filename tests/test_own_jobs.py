"""Jobs of a user's own on a live campus: submitted, followed, moved by a reclaim, their failures explained."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.emulation_campuses import kernel
from tests.live_campus import CLI, command, running

pytestmark = kernel
EXAMPLES = Path(__file__).parents[1] / "docs/examples"
FAILING = """
from counting import Counting


class Failing(Counting):
    def step(self):
        raise ValueError("[/red] as told")  # no markup of the table that shows it
"""


def test_a_job_of_ones_own_outlives_a_reclaim_and_another_says_why_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the campus's agents look for modules
    for name in ("counting.py", "counting.toml"):
        shutil.copy(EXAMPLES / name, tmp_path)
    (tmp_path / "failing.py").write_text(FAILING)
    good = (EXAMPLES / "counting.toml").read_text()
    (tmp_path / "failing.toml").write_text(good.replace("counting:Counting", "failing:Failing"))
    broken = tmp_path / "broken.toml"
    broken.write_text(
        'workload = "synthetic"\nsteps = 3\nstep = "10 ms"\npayload = "1 kB"\n[params]\ntypo = 1\n'
    )
    script = tmp_path / "commands"
    script.write_text("sh sleep 60\n")
    with running(tmp_path / "out", "up", "--hosts", "3", "--script", str(script)) as run:
        run.wait_until(lambda: command("jobs").returncode == 0)
        refused = command("submit", "counting.toml", str(broken))
        assert (refused.returncode, "params.typo" in refused.stderr) == (2, True), refused.stderr
        assert "counting" not in command("jobs").stdout  # with a wrong one beside it, it was not handed over
        watching = subprocess.Popen([*CLI, "events", "--job", "counting"], stdout=subprocess.PIPE, text=True)
        try:
            accepted = command("submit", "counting.toml", "failing.toml")
            assert accepted.returncode == 0, accepted.stderr
            run.wait_until(lambda: "step 5\n" in command("logs", "counting").stdout)
            host = next(line for line in command("jobs").stdout.splitlines() if "counting" in line).split()[5]
            assert command("reclaim", host).returncode == 0
            followed = command("logs", "counting", "--follow").stdout
        finally:
            watching.terminate()
            told = [json.loads(line) for line in (watching.communicate()[0]).splitlines()]
        assert "== attempt 1\nbegins\nstep 1\n" in followed
        assert "== attempt 2\n" in followed
        assert followed.endswith("step 50\n")
        listed = command("jobs").stdout
        assert "finished" in listed
        assert "[/red] as told" in listed
        assert "ValueError: [/red] as told" in command("logs", "failing").stdout
        assert next(fact["host"] for fact in told if fact["fact"] == "JobRunning") == host
        assert "JobFinished" in [fact["fact"] for fact in told]
        assert command("logs", "nothing").returncode == 2
    assert (tmp_path / "out/logs/jobs/counting.2.log").read_text().endswith("step 50\n")
