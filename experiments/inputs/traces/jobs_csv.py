"""A user's own jobs.

    time,job,payload,steps,step,memory
    0,bert,1.3 GB,20000,2 s,12 GB
    12 min,lora,720 MB,3600,10 s,

`time` and `step` are seconds or have a unit (a time may be a date, as in the owners' file), `payload` and `memory` are
bytes or have a unit, `steps` is a whole number. The columns `memory`, `dirty_fraction`, `min_capability` and
`loss_budget` may be left out; where they are, or are empty, the scenario's jobs say what holds (of memory: their law's
typical value). Rows are in order of time.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from experiments.inputs.scenario import Jobs
from experiments.inputs.traces.csv_rows import read_rows
from experiments.inputs.traces.timestamps import Moments
from experiments.inputs.traces.trace import JobArrival, JobDraw, wrong_name
from topologies.dimension import Dimension
from topologies.units import plain

D = Dimension
COLUMNS = ("time", "job", "payload", "steps", "step")
OPTIONAL = ("memory", "dirty_fraction", "min_capability", "loss_budget")
MOST_BYTES = 1e15
MOST_STEPS = 1_000_000_000
LONGEST_S = 1e9


def parse_jobs(
    text: str, jobs: Jobs, duration_s: float, moments: Moments | None = None
) -> tuple[JobArrival, ...]:
    """The jobs in a CSV text that arrive before the run ends. SpecError says line, column, value and what is allowed."""
    moments = moments or Moments()
    arrivals: list[JobArrival] = []
    names: set[str] = set()
    for row in read_rows(text, COLUMNS, optional=OPTIONAL):
        at_s, name = moments.seconds(row, "time"), row.text("job")
        if allowed := wrong_name(name):
            raise row.wrong("job", allowed)
        job = JobDraw(
            name=name,
            payload_bytes=round(row.quantity("payload", D.SIZE, 1.0, MOST_BYTES)),
            steps=row.whole("steps", 1, MOST_STEPS),
            step_s=row.quantity("step", D.DURATION, 1e-6, LONGEST_S),
            dirty_fraction=row.quantity("dirty_fraction", D.NUMBER, 0.0, 1.0, default=jobs.dirty_fraction),
            memory_bytes=row.quantity("memory", D.SIZE, 0.0, MOST_BYTES, default=jobs.memory.typical),
            min_capability=row.quantity(
                "min_capability", D.NUMBER, 0.0, 1000.0, default=min(jobs.min_capabilities)
            ),
            loss_budget_s=row.quantity(
                "loss_budget", D.DURATION, 1e-6, LONGEST_S, default=jobs.loss_budget_s
            ),
        )
        if arrivals and at_s < arrivals[-1].at_s:
            raise row.wrong("time", f"at least the time of the row before, {arrivals[-1].at_s:g} s")
        if name in names:
            raise row.wrong("job", "a name that no job before it has")
        names.add(name)
        arrivals.append(JobArrival(at_s, job))
    return tuple(arrival for arrival in arrivals if arrival.at_s < duration_s)


def jobs_csv(arrivals: Iterable[JobArrival]) -> str:
    """The text of a file that gives these jobs back."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, *OPTIONAL])
    for arrival in arrivals:
        job = arrival.job
        numbers = (
            job.step_s, job.memory_bytes, job.dirty_fraction, job.min_capability, job.loss_budget_s,
        )  # fmt: skip
        writer.writerow(
            (
                plain(arrival.at_s),
                job.name,
                job.payload_bytes,
                job.steps,
                *(plain(n) for n in numbers),
            )
        )
    return out.getvalue()
