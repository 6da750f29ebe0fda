"""A job with two GPUs of one host, on a live campus: one process that is told which it has, and moves to two of another host."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import topologies
from controller.core.model import facts as f
from tests.emulation_campuses import kernel
from tests.live_campus import command, running

pytestmark = kernel
EXAMPLES = Path(__file__).parents[1] / "docs/examples"
WIDE_DESK = """
[[hosts]]
name = "desk9"
building = "lab"
gpu_model = "rtx4090"
gpus = 2
link_to = "desks"
rate = "1 Gbit/s"
"""
PROGRAM = """#!/bin/sh
echo "has $RECLAIMNET_GPUS"
exec "$(dirname "$0")/adding.sh"
"""


def test_a_live_job_has_two_gpus_of_one_host_and_moves_to_two_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lab = (Path(topologies.__file__).parent / "examples/lab.toml").read_text()
    (tmp_path / "lab.toml").write_text(lab + WIDE_DESK)
    shutil.copy(EXAMPLES / "adding.sh", tmp_path)
    (tmp_path / "wide.sh").write_text(PROGRAM)
    (tmp_path / "wide.sh").chmod(0o755)
    (tmp_path / "wide.toml").write_text(
        'command = ["./wide.sh"]\ngpus = 2\nsteps = 300\nstep = "50 ms"\npayload = "100 kB"\n'
    )
    (tmp_path / "commands").write_text("sh sleep 100\n")
    with running(tmp_path / "out", "up", "--campus", "lab.toml", "--script", "commands") as run:
        run.wait_until_it_answers()
        accepted = command("submit", "wide.toml")
        assert accepted.returncode == 0, accepted.stderr
        first = run.wait_for(f.JobRunning, job="wide", attempt=1).host
        assert command("reclaim", first, "--notice", "20").returncode == 0
        second = run.wait_for(f.JobRunning, job="wide", attempt=2).host
        assert {first, second} == {"desk9", "server"}
        assert "has 0,1" in command("logs", "wide").stdout
        assert command("cancel", "wide").returncode == 0
