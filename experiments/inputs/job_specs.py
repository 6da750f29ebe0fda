"""Submissions made from a trace's jobs, in either world."""

from __future__ import annotations

from zlib import crc32

import msgspec

from experiments.inputs.traces import JobArrival
from testbed.messages import JobSpec


def job_spec(arrival: JobArrival, name: str = "") -> JobSpec:
    """Return a trace's job, as it is submitted; `name`: a job of another name that is like it.

    Its state is its own: a seed by its name. Jobs of one seed would hold the same bytes at the same step: a store that
    has one would lack little of another. A user's own job keeps its own state.
    """
    job = arrival.job
    name = name or job.name
    if job.given is not None:
        return msgspec.structs.replace(
            job.given,
            name=name,
            step_s=job.step_s,
            payload_bytes=job.payload_bytes,
            memory_bytes=job.memory_bytes,
            min_capability=job.min_capability,
            loss_budget_s=job.loss_budget_s,
        )
    return JobSpec(
        name,
        job.steps,
        job.step_s,
        job.payload_bytes,
        params={"dirty_fraction": job.dirty_fraction, "seed": crc32(name.encode())},
        memory_bytes=job.memory_bytes,
        min_capability=job.min_capability,
        loss_budget_s=job.loss_budget_s,
    )
