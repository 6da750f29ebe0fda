"""From a trace's job to what is submitted."""

from __future__ import annotations

from experiments.traces import JobArrival
from testbed.messages import JobSpec


def job_spec(arrival: JobArrival) -> JobSpec:
    """A trace's job, as it is submitted."""
    job = arrival.job
    return JobSpec(
        job.name,
        job.steps,
        job.step_s,
        job.payload_bytes,
        params={"dirty_fraction": job.dirty_fraction},
        memory_bytes=job.memory_bytes,
        min_capability=job.min_capability,
        loss_budget_s=job.loss_budget_s,
    )
