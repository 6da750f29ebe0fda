"""Programs of the project's own run as themselves, whatever lies in the folder of start or is first on Python's path."""

import os
import subprocess
from pathlib import Path

import pytest

from testbed.own_programs import own_program

PACKAGES = ("bpf", "controller", "experiments", "testbed", "topologies", "trio", "json")


@pytest.mark.parametrize("on_path", [False, True], ids=["folder of start", "PYTHONPATH"])
@pytest.mark.parametrize("module", ["controller.openflow", "experiments.cli"])
def test_a_module_of_the_user_is_not_run_in_place_of_the_project(module: str, on_path: bool, tmp_path: Path) -> None:
    for name in PACKAGES[: 5 if on_path else None]:  # a `json.py` on PYTHONPATH is the user's word to all of Python
        (tmp_path / f"{name}.py").write_text("raise SystemExit('THE USER HAS BEEN RUN')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)} if on_path else None
    done = subprocess.run(
        [*own_program(module), "--help"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert "THE USER" not in done.stdout + done.stderr
    assert done.returncode == 0
    assert "usage" in done.stdout.lower()
