"""A gang on a live campus: four processes in four namespaces that meet over its links, and move or end all or none."""

from __future__ import annotations

import importlib.util
import shutil
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.persistence.journal import read_facts
from tests.emulation_campuses import kernel
from tests.gang_ranks import sums_of_together
from tests.live_campus import Run, command, running

pytestmark = kernel
EXAMPLES = Path(__file__).parents[1] / "docs/examples"
BEGUN, OVER = "JobRunning", "JobFinished"


@contextmanager
def a_campus(path: Path, monkeypatch: pytest.MonkeyPatch, hosts: int) -> Iterator[tuple[Run, Path]]:
    """Stands in `path`; with its journal, which has every fact."""
    monkeypatch.chdir(path)
    (path / "commands").write_text("sh sleep 100\n")
    with running(path / "out", "up", "--hosts", str(hosts), "--script", str(path / "commands")) as run:
        run.wait_until_it_answers()
        yield run, path / "out" / "journal.sqlite"


def facts(told: Path, kind: str, **of: Any) -> list[dict[str, Any]]:
    """Of that kind with these fields, so far."""
    found = (msgspec.to_builtins(fact) for _, fact in read_facts(told) if type(fact).__name__ == kind)
    return [fact for fact in found if all(fact[key] == value for key, value in of.items())]


def fewer_steps(example: str, steps: int, fewer: int) -> str:
    """A job of the documentation with `fewer` steps instead of that many."""
    said = (EXAMPLES / example).read_text()
    assert f"steps = {steps}\n" in said
    return said.replace(f"steps = {steps}\n", f"steps = {fewer}\n")


def restored(told: Path, attempt: int) -> int:
    """The step from which all ranks of that attempt were restored."""
    begun = facts(told, "JobDispatched", attempt=attempt)
    assert len(begun) == 4
    assert len({(fact["restore_sequence"], fact["restore_step"]) for fact in begun}) == 1
    return int(begun[0]["restore_step"])


def test_a_gang_survives_a_kill_and_moves_on_notice_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_campus(tmp_path, monkeypatch, 7) as (run, told):
        assert command("reclaim", "h4").returncode == 0  # else one host with four GPUs would have all ranks
        # a budget, since the first checkpoint comes after ten seconds without
        job = fewer_steps("gang.toml", 150, 45) + 'loss_budget = "4 s"\n'
        (tmp_path / "gang.toml").write_text(job)
        accepted = command("submit", "gang.toml")
        assert accepted.returncode == 0, accepted.stderr
        run.wait_until(lambda: len(facts(told, BEGUN, attempt=1)) == 4)
        run.wait_until(lambda: len({fact["job"] for fact in facts(told, "CheckpointCompleted")}) == 4)
        host = facts(told, BEGUN, attempt=1, job="gang.1of4")[0]["host"]
        assert command("reclaim", host).returncode == 0
        run.wait_until(lambda: len(facts(told, BEGUN, attempt=2)) == 4)
        assert restored(told, 2) > 0
        there = {fact["job"]: fact["host"] for fact in facts(told, BEGUN, attempt=2)}
        left = there["gang.2of4"]
        leaving = {job for job, host in there.items() if host == left}
        assert command("reclaim", left, "--notice", "20").returncode == 0
        run.wait_until(lambda: len(facts(told, BEGUN, attempt=3)) == 4)
        restored(told, 3)
        moved = {fact["job"]: fact for fact in facts(told, "MigrationFinished")}
        assert moved.keys() == leaving
        assert all(fact["in_time"] and fact["source"] == left for fact in moved.values())
        then = {fact["job"]: fact["host"] for fact in facts(told, BEGUN, attempt=3)}
        assert then == there | {job: fact["destination"] for job, fact in moved.items()}
        assert not facts(told, "WorkLost", attempt=3)
        run.wait_until(lambda: len(facts(told, OVER)) == 4, timeout_s=60.0)
        assert len({fact["digest"] for fact in facts(told, OVER)}) == 4
        # second copies, of all ranks: parts of one number that a host holds beside the one that completed it
        held = {(fact["job"], fact["sequence"]) for fact in facts(told, "CheckpointHeld")}
        assert any(
            {f"gang.{n}of4" for n in range(4)} == {job for job, number in held if number == sequence}
            for _, sequence in held
        )


# shorter: `test_gang_processes` has the same ranks without a campus, and the gang above is killed on one
@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra `torch`")
def test_four_ranks_train_over_gloo_and_hold_one_model_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(EXAMPLES / "gloo.py", tmp_path)
    (tmp_path / "gloo.toml").write_text(fewer_steps("gloo.toml", 200, 100))
    with a_campus(tmp_path, monkeypatch, 9) as (run, told):
        assert command("reclaim", "h4").returncode == 0  # else one host with four GPUs would have all ranks
        accepted = command("submit", "gloo.toml")
        assert accepted.returncode == 0, accepted.stderr
        run.wait_until(lambda: len(facts(told, BEGUN, attempt=1)) == 4, timeout_s=60.0)
        host = facts(told, BEGUN, attempt=1, job="gloo.1of4")[0]["host"]
        assert command("reclaim", host).returncode == 0
        run.wait_until(lambda: len(facts(told, OVER)) == 4, timeout_s=60.0)
        assert {fact["attempt"] for fact in facts(told, OVER)} == {2}
        assert len({fact["digest"] for fact in facts(told, OVER)}) == 1


def test_programs_of_three_hosts_survive_a_kill_and_a_notice_with_the_result_of_an_undisturbed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "trio.toml"
    job.write_text(
        textwrap.dedent(f"""\
            command = ["{EXAMPLES / "together.py"}"]
            ranks = 4
            steps = 100
            step = "50 ms"
            payload = "100 kB"
            loss_budget = "2 s"
        """)
    )
    with a_campus(tmp_path, monkeypatch, 7) as (run, told):
        assert command("reclaim", "h4").returncode == 0  # else one host with four GPUs would have all ranks
        accepted = command("submit", str(job))
        assert accepted.returncode == 0, accepted.stderr
        run.wait_until(lambda: len(facts(told, BEGUN, attempt=1)) == 4, timeout_s=30.0)
        run.wait_until(lambda: len({fact["job"] for fact in facts(told, "CheckpointCompleted")}) == 4)
        host = facts(told, BEGUN, attempt=1, job="trio.1of4")[0]["host"]
        assert command("reclaim", host).returncode == 0
        run.wait_until(lambda: len(facts(told, BEGUN, attempt=2)) == 4, timeout_s=30.0)
        assert restored(told, 2) > 0
        left = facts(told, BEGUN, attempt=2, job="trio.2of4")[0]["host"]
        assert command("reclaim", left, "--notice", "12").returncode == 0
        run.wait_until(lambda: len(facts(told, BEGUN, attempt=3)) == 4, timeout_s=30.0)
        restored(told, 3)
        assert not facts(told, "WorkLost", attempt=3)
        run.wait_until(lambda: len(facts(told, OVER)) == 4, timeout_s=60.0)
        said = command("logs", "trio").stdout
        for result in sums_of_together(4, 100):
            assert f"the number is {result}" in said
