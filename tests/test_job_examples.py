"""The jobs that the documentation ships: each is submitted as it stands, computes what it says, and survives being moved."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from experiments.inputs.job_file import check_runs, load_job
from testbed.messages import JobSpec
from testbed.workloads.base import load_workload
from testbed.workloads.messages import Finished, Started, WorkloadSpec
from tests.job_desk import desk, next_of

EXAMPLES = Path(__file__).parents[1] / "docs/examples"
JOBS = ("counting.toml", "adding.toml", "regression.toml")


@pytest.mark.parametrize("name", JOBS)
def test_each_job_of_the_documentation_would_be_taken(name: str) -> None:
    check_runs(load_job(EXAMPLES / name), EXAMPLES)


@pytest.mark.trio
async def test_the_regression_ends_with_the_digest_of_its_uninterrupted_twin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    job: JobSpec = load_job(EXAMPLES / "regression.toml")
    steps = 6 * job.steps  # so that it does not end between two looks
    params = {**job.params, "steps": steps}
    twin = load_workload(job.workload, params)
    twin.begin()
    while twin.step_number < twin.steps_total:
        twin.step()
    restore, reached = None, 0
    async with desk(tmp_path, modules=EXAMPLES) as d:
        for number in range(3):
            process = await d.start(WorkloadSpec(job.workload, params), restore)
            assert (await next_of(process, Started)).step == reached
            if number < 2:
                began_s = time.monotonic()
                while time.monotonic() < began_s + 0.1:
                    await process.receive()
                restore = tmp_path / f"state{number}"
                taken = await process.snapshot(restore, stop=True)
                assert steps > taken.step > reached
                reached = taken.step
                process.kill()
        assert (await next_of(process, Finished)).digest == twin.verify()
