"""Where tasks are played makes no difference to results, and lost workers none to whether there are any."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.user_policies import forget
from experiments.inputs.scenario import demo_scenario
from experiments.runtime import revision
from experiments.runtime.engines import Engine
from experiments.runtime.tasks import Task, results_of
from experiments.runtime.workers import workers
from experiments.sweeps import SweepPlan, run_sweep
from testbed.errors import SetupError
from tests.dask_cluster import ROOT, Cluster, cluster
from topologies.errors import SpecError

pytestmark = pytest.mark.extra  # Dask, and processes that import all of the program


def square(number: int, took_s: float = 0.0) -> dict[str, int]:
    """Something to play."""
    time.sleep(took_s)
    return {"square": number**2}


def die(_: int) -> dict[str, int]:
    """Takes its process with it."""
    os._exit(1)


def squares(count: int, took_s: float = 0.0) -> list[Task]:
    return [Task(f"square of {number}", square, (number, took_s)) for number in range(count)]


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    with cluster(tmp_path_factory.mktemp("dask"), workers=3) as found:
        yield found


def test_a_worker_that_is_killed_costs_no_result(dask: Cluster) -> None:
    tasks = squares(60, 0.05)
    engine, seen = Engine(dask=dask.address), []
    with engine.opened(len(tasks)) as play:
        for task, result in play(tasks):
            seen.append((task.key, result["square"]))
            if len(seen) == 10:
                dask.workers[0].kill()
    assert sorted(seen) == sorted((f"square of {number}", number**2) for number in range(60))
    dask.add_worker()


def test_a_worker_with_another_text_of_the_project_is_refused(dask: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revision, "program", lambda: "other")
    with pytest.raises(SetupError, match="another text of the project"), Engine(dask=dask.address).opened(1) as play:
        list(play(squares(1)))


def test_a_users_module_travels_with_its_tasks_and_a_changed_one_is_read_anew(
    dask: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    file = tmp_path / "travels.py"
    for answer in (41, 42):
        file.write_text(f"def answer(_): return {{'answer': {answer}, 'cwd': ''}}\n")
        sys.modules.pop("travels", None)
        import travels

        engine = Engine(dask=dask.address, modules={"travels.py": file})
        with engine.opened(1) as play:
            assert [result["answer"] for _, result in play([Task("t", travels.answer, (0,))])] == [answer]
    sys.modules.pop("travels")


def test_sweeps_by_dask_give_what_this_process_gives(
    dask: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_engines.py").write_text(
        "from controller.core.policies.table import Policy\nmine = Policy('mine', vault=False)\n"
    )
    monkeypatch.chdir(tmp_path)  # the workers have other folders
    monkeypatch.setattr(sys, "path", list(sys.path))
    scenario = demo_scenario(hosts=4, buildings=2, seconds=10.0)
    plan = SweepPlan(scenario, ("reclaimnet", "of_engines:mine"), (1, 2), figures=("jobs.finished",))
    elsewhere = run_sweep(plan, Engine(dask=dask.address), None)
    here = run_sweep(plan, Engine(1), None)
    assert elsewhere.runs.equals(here.runs)
    assert elsewhere.intervals.equals(here.intervals)
    forget(["of_engines"])
    sys.modules.pop("of_engines")


def test_an_address_where_nobody_answers_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.runtime.engines.CONNECT_S", 0.2)
    address = "tcp://127.0.0.1:1"
    with (
        pytest.raises(SetupError, match=re.escape(f"{address}: no Dask scheduler answers there")),
        Engine(dask=address).opened(1),
    ):
        pass
    with pytest.raises(SpecError, match="the address of a scheduler"), Engine(dask="nonsense://x").opened(1):
        pass


def test_a_local_worker_that_is_killed_is_said_and_what_was_played_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with pytest.raises(SetupError, match="a worker process was killed"):
        results_of([*squares(2), Task("dies", die, (0,))], path, "code", Engine(2).opened)
    engine = Engine(1)
    told: list[tuple[int, int]] = []
    results_of(squares(2), path, "code", engine.opened, lambda done, total: told.append((done, total)))
    assert told[-1] == (2, 2)


def test_results_are_in_the_order_of_the_tasks_whatever_ends_first() -> None:
    slow_first = [Task(f"{n}", square, (n, 0.3 * (n == 0))) for n in range(4)]
    assert list(results_of(slow_first, None, "code", Engine(2).opened)) == ["0", "1", "2", "3"]


def test_a_script_needs_no_guard_for_its_main_program(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from experiments.runtime.engines import Engine\n"
        "from experiments.runtime.tasks import results_of\n"
        "from tests.test_engines import squares\n"
        "print('begins')\n"
        "print(results_of(squares(3), None, 'code', Engine(2).opened)['square of 2'])\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("begins\n{'square': 4}\n", 0), done.stderr


def test_an_interrupt_ends_workers_in_the_middle_of_their_tasks() -> None:
    """One that waited for a run of minutes could not be told from one that hangs."""
    began_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt), workers(2) as pool:
        pool.submit(time.sleep, 0.0).result()
        running = [pool.submit(time.sleep, 300.0) for _ in range(3)]
        raise KeyboardInterrupt
    assert time.monotonic() - began_s < 120.0
    assert not any(one.done() and one.exception() is None for one in running if not one.cancelled())
