"""The programs of experiments/examples: each is run as a reader runs it, shortened, and prints what it is about."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.emulation.kernel.openvswitch import missing_programs
from tests.emulation_campuses import kernel

ROOT = Path(__file__).parents[1]
NAMES = {path.stem for path in (ROOT / "experiments/examples").glob("[a-z]*.py")}
no_fabric = pytest.mark.skipif(bool(missing_programs()), reason=f"Open vSwitch lacks {missing_programs()}")
# program and arguments -> what it prints
VIRTUAL = {
    "my_policy 2": r"seed 2: reclaimnet loses [\d.]+ s.*\nnearest loses [+-]\d",
    "two_months 2": r"(?s)reclaimnet: [\d.]+ GPU-hours lost.*slurm-pr: [\d.]+ GPU-hours.*two_months\.svg",
    "one_reclaim --virtual": r"moved in time: 1 of 1",
}
LIVE = {
    "ping_campus": r"with 5 ms each way: 1[0-9]\.\d+ ms(.*\n)+.* 0% dropped",
    "one_reclaim": r"MigrationFinished\(job='mine', source='h1', destination='h2'(.*\n)+moved in time: 1 of 1",
    "my_workload": r"begins\nfibonacci\.2\.log: resumes after step \d+\nwork lost: .*finished: 1",
    "five_hundred_hosts 12": r"12 hosts and \d+ switches stand(.*\n)+rtt .*\ndown after",
    "kill_switch_latency 3": r"got in: 0 in 3 acts",
}
LONGER = {"my_workload": (pytest.mark.long,)}  # tests/test_own_jobs.py has a job of one's own too


def run(words: str, folder: Path) -> str:
    """Run a program from a folder in which its `docs` and `out` are; return its output."""
    name, *arguments = words.split()
    (folder / "docs").symlink_to(ROOT / "docs")
    done = subprocess.run(
        [sys.executable, "-m", f"experiments.examples.{name}", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("words", VIRTUAL)
def test_a_program_without_root_prints_what_its_docstring_says(words: str, tmp_path: Path) -> None:
    assert re.search(VIRTUAL[words], run(words, tmp_path))


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, marks=[*kernel, pytest.mark.apart, pytest.mark.campus, *LONGER.get(words, ())])
        for words in LIVE
    ],
)
def test_a_program_that_builds_a_campus_prints_what_its_docstring_says(words: str, tmp_path: Path) -> None:
    printed = run(words, tmp_path)
    assert re.search(LIVE[words], printed), printed


@pytest.mark.parametrize(
    "words", [pytest.param("cut_trunk", marks=[*kernel, pytest.mark.apart, pytest.mark.campus, no_fabric])]
)
def test_a_cut_that_is_drained_first_loses_no_ping(words: str, tmp_path: Path) -> None:
    printed = run(words, tmp_path)
    assert re.search(r"unannounced: \d+ of 400 pings lost(.*\n)+drained first: 0 of 400", printed), printed


def test_every_program_is_run_and_shown_on_the_page() -> None:
    run_here = {words.split()[0] for words in (*VIRTUAL, *LIVE, "cut_trunk")}
    page = (ROOT / "docs/examples.md").read_text()
    shown = set(re.findall(r'^--8<-- "experiments/examples/(\w+)\.py"$', page, re.MULTILINE))
    assert NAMES == run_here == shown
    for name in NAMES:
        lines = (ROOT / f"experiments/examples/{name}.py").read_text().splitlines()
        assert 30 <= len(lines) <= 90, name
