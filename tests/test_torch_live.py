"""A transformer is trained on a live campus whose owners take three hosts back: its losses are those of a twin left alone."""

import io
import json
import shlex
import shutil
import signal
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import pytest

from controller.core.model import facts as f
from controller.persistence.journal import read_facts
from experiments.inputs.job_file import load_job
from experiments.results.measurements import measured_curves
from experiments.runtime.exit_status import ExitStatus
from testbed.workloads.base import load_workload
from tests.doc_pages import commands
from tests.emulation_campuses import kernel
from tests.live_campus import Run, command, running

NEEDED = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch: the extra 'torch'")
pytestmark = [*kernel, pytest.mark.apart, NEEDED, pytest.mark.extra, pytest.mark.timeout(300)]
EXAMPLES = Path(__file__).parents[1] / "docs/examples"
JOB = "transformer"


def completed(run: Run, attempt: int, step: int, on_other_than: tuple[str, ...] = ()) -> str:
    """The host that holds a checkpoint of the attempt, of that step or a later one; waits for one."""
    found: list[str] = []

    def look() -> bool:
        for _, fact in read_facts(run.out / "journal.sqlite"):
            is_one = isinstance(fact, f.CheckpointCompleted) and fact.sequence // 1_000_000 == attempt
            if is_one and fact.step >= step:
                found.extend({fact.holder} - set(on_other_than))
        return bool(found)

    run.wait_until(look, timeout_s=60.0)
    return found[-1]


def reclaim(*words: str) -> None:
    done = command(*words)
    assert done.returncode == 0, done.stderr


def test_three_reclaims_do_not_change_a_bit_of_what_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where the campus's agents look for modules
    for name in ("transformer.py", "transformer.toml", "training.toml"):
        shutil.copy(EXAMPLES / name, tmp_path)
    page = (tmp_path / "transformer.toml").read_text()
    assert page.count("steps = 100\n") == 2
    (tmp_path / "transformer.toml").write_text(page.replace("steps = 100\n", "steps = 80\n"))
    start, submit, jobs, with_notice, at_once = [shlex.split(each)[1:] for each in commands("docs/torch.md")]
    assert (start.pop(-1), start.pop(-1)) == ("out/training", "--out")
    with running(tmp_path / "out", *start) as run:
        run.wait_until(lambda: command(*jobs).returncode == 0)
        accepted = command(*submit)
        assert accepted.returncode == 0, accepted.stderr
        completed(run, 1, 12)
        first = run.wait_for(f.JobRunning, attempt=1).host  # whichever it is: the page says one
        reclaim(*(first if word == "desk1" else word for word in with_notice))
        second = run.wait_for(f.JobRunning, attempt=2)
        completed(run, 2, 30)
        reclaim(*(second.host if word == "desk2" else word for word in at_once))
        third = run.wait_for(f.JobRunning, attempt=3)
        standby = completed(run, 3, 45)
        reclaim("reclaim", standby)
        completed(run, 3, 46, on_other_than=(standby,))
        proof = run.wait_for(f.JobFinished)
        run.process.send_signal(signal.SIGINT)
        assert run.finish(60) == ExitStatus.INTERRUPTED
    assert (proof.attempt, proof.host) == (3, third.host)
    assert second.step >= 12
    assert third.restored_sequence is not None

    spec = load_job(tmp_path / "transformer.toml")
    monkeypatch.syspath_prepend(tmp_path)
    twin = load_workload(spec.workload, spec.params)
    told = io.StringIO()
    with redirect_stdout(told):
        twin.begin()
        while twin.step_number < twin.steps_total:
            twin.step()
    losses = {line["step"]: line["loss"] for line in map(json.loads, told.getvalue().splitlines())}
    sys.modules.pop("transformer")
    import torch

    torch.use_deterministic_algorithms(False)

    [curve] = measured_curves(tmp_path / "out/logs/jobs")
    assert sorted(curve.attempts) == [1, 2, 3]
    assert {step: loss for _, points in sorted(curve.attempts.items()) for step, loss in points} == losses
    assert all(losses[step] == loss for points in curve.attempts.values() for step, loss in points)
    assert proof.digest == twin.verify().hex()

    page = (tmp_path / "out/report.html").read_text()
    assert "loss of transformer by step, 3 attempts" in page
    checkpoints = run.summary()["checkpoints"]
    assert (
        checkpoints["stopped"] == 0
    )  # training went on while they were written, an optimiser that was empty at first too
    assert run.summary()["migrations"]["admitted"] == 1
    assert run.summary()["emergencies"]["restored_verified"] == 1
