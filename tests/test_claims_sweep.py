"""Sweeps: every task once, results kept at once, resumed, and never taken from other code."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from experiments.claims.framework.claim import Config
from experiments.claims.framework.runs import gather
from experiments.runtime import revision
from experiments.runtime.tasks import RUNS, Result, Task, results_of
from tests.patience import wait_until
from topologies.errors import SpecError


def square(number: int, log: Path) -> Result:
    """Writes that it ran."""
    with log.open("a") as file:
        file.write(f"{number} ")
    return {"square": number**2, "process": os.getpid()}


def tasks(numbers: Sequence[int], log: Path) -> list[Task]:
    return [Task(f"square of {number}", square, (number, log)) for number in numbers]


def sweep(tasks: Sequence[Task], config: Config) -> list[Result]:
    return gather({"": tasks}, config)[""]


def ran(log: Path) -> list[int]:
    return sorted(int(word) for word in log.read_text().split()) if log.exists() else []


def test_a_sweep_goes_on_where_it_stopped_even_within_a_line(tmp_path: Path) -> None:
    log, path = tmp_path / "log", tmp_path / "claims" / RUNS
    sweep(tasks([1, 2, 3], log), Config(tmp_path / "claims"))
    path.write_text(path.read_text()[:-10])  # killed while it wrote the third
    found = sweep(tasks([1, 2, 3, 4], log), Config(tmp_path / "claims"))
    assert ran(log) == [1, 2, 3, 3, 4]
    assert sorted(result["square"] for result in found) == [1, 4, 9, 16]
    sweep(tasks([1, 2, 3, 4], log), Config(tmp_path / "claims"))
    assert ran(log) == [1, 2, 3, 3, 4]


def test_results_of_other_code_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    sweep(tasks([1], log), Config(tmp_path / "claims"))
    monkeypatch.setattr(revision, "program", lambda: "another text")
    sweep(tasks([1], log), Config(tmp_path / "claims"))
    assert ran(log) == [1, 1]


def test_two_tasks_of_one_key_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one key"):
        results_of(tasks([2, 2], tmp_path / "log"), None, "", Config(tmp_path).engine.opened)


def test_several_workers_are_other_processes_and_one_is_this(tmp_path: Path) -> None:
    shared = sweep(tasks([1, 2], tmp_path / "log"), Config(tmp_path / "two", workers=2))
    alone = sweep(tasks([1, 2], tmp_path / "log"), Config(tmp_path / "one", workers=1))
    assert os.getpid() not in {result["process"] for result in shared}
    assert {result["process"] for result in alone} == {os.getpid()}


@pytest.mark.parametrize(("seeds", "workers"), [((1,), 1), ((), 1), ((3, 3), 1), (None, 0)])
def test_sizes_that_make_no_sense_are_refused(tmp_path: Path, seeds: tuple[int, ...] | None, workers: int) -> None:
    with pytest.raises((SpecError, ValueError), match="at least"):
        Config(tmp_path, seeds=seeds, workers=workers)


def sleep_long(log: Path) -> Result:
    """Says who it is, and does not end by itself."""
    (log / str(os.getpid())).touch()
    time.sleep(1000.0)
    return {}


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    code = (
        "from pathlib import Path; from tests.test_claims_sweep import *\n"
        f"log = Path({str(log)!r}); both = [Task(str(n), sleep_long, (log,)) for n in range(2)]\n"
        f"if __name__ == '__main__': sweep(both, Config(Path({str(tmp_path)!r}), workers=2))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[1]) as parent:
        try:
            wait_until(lambda: len(list(log.iterdir())) == 2)
        finally:
            parent.kill()
    workers = [int(path.name) for path in log.iterdir()]
    wait_until(lambda: not any(is_alive(pid) for pid in workers))


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
