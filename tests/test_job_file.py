"""Job files: what is read is what is submitted, and every mistake is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.inputs.job_file import check_runs, load_job
from testbed.messages import JobSpec
from topologies.errors import SpecError

GOOD = 'steps = 3\nstep = "2 s"\npayload = "4 MB"\n'


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_a_job_file_is_the_job_that_is_submitted(tmp_path: Path) -> None:
    assert load_job(written(tmp_path, GOOD)) == JobSpec("mine", 3, 2.0, 4_000_000)
    text = (
        f'name = "other"\nworkload = "mod:Class"\nmemory = "8 GB"\nmin_capability = 7.5\nloss_budget = "90 s"\n{GOOD}'
        '[params]\nrate = 0.5\ndeep = true\nkind = "x"\nlayers = 3\n'
    )
    params = {"rate": 0.5, "deep": True, "kind": "x", "layers": 3}
    wanted = JobSpec("other", 3, 2.0, 4_000_000, "mod:Class", params, 8e9, 7.5, 90.0)
    assert load_job(written(tmp_path, text)) == wanted


@pytest.mark.parametrize(
    ("module", "raised"),
    [("class Class(:\n", "SyntaxError"), ("raise RuntimeError('no GPU')\n", "RuntimeError: no GPU")],
)
def test_a_module_that_raises_is_the_users_mistake_and_not_this_programs(
    tmp_path: Path, module: str, raised: str
) -> None:
    (tmp_path / f"broken_{len(module)}.py").write_text(module)
    with pytest.raises(SpecError, match=raised):
        check_runs(load_job(written(tmp_path, f'workload = "broken_{len(module)}:Class"\n{GOOD}')), tmp_path)
