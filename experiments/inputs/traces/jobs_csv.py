"""One's own jobs.

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
from collections.abc import Callable, Iterable

from experiments.inputs.scenario import Jobs
from experiments.inputs.traces.csv_rows import CsvRow, read_rows
from experiments.inputs.traces.timestamps import Moments, number_of, seconds_of
from experiments.inputs.traces.trace import JobArrival, JobDraw
from topologies.units import parse_size, plain

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
    for row in read_rows(text, COLUMNS):
        arrival = JobArrival(moments.seconds(row, "time"), _job(row, jobs))
        if arrivals and arrival.at_s < arrivals[-1].at_s:
            raise row.wrong("time", f"at least the time of the row before, {arrivals[-1].at_s:g} s")
        if arrival.job.name in names:
            raise row.wrong("job", "a name that no job before it has")
        names.add(arrival.job.name)
        arrivals.append(arrival)
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
            (plain(arrival.at_s), job.name, job.payload_bytes, job.steps, *(plain(n) for n in numbers))
        )
    return out.getvalue()


def _job(row: CsvRow, jobs: Jobs) -> JobDraw:
    name = row.text("job")
    if not (name.isprintable() and 1 <= len(name) <= 64):
        raise row.wrong("job", "a name of 1 to 64 printable characters")
    return JobDraw(
        name=name,
        payload_bytes=round(_number(row, "payload", _bytes, 1.0, MOST_BYTES, 'bytes, or a size: "3.2 GB"')),
        steps=_steps(row),
        step_s=_number(row, "step", seconds_of, 1e-6, LONGEST_S, 'seconds, or a duration: "10 s"'),
        dirty_fraction=_or(row, "dirty_fraction", jobs.dirty_fraction, number_of, 1.0, "a share"),
        memory_bytes=_or(row, "memory", jobs.memory.typical, _bytes, MOST_BYTES, 'bytes, or a size: "12 GB"'),
        min_capability=_or(row, "min_capability", min(jobs.min_capabilities), number_of, 1000.0, "a number"),
        loss_budget_s=_number(
            row, "loss_budget", seconds_of, 1e-6, LONGEST_S, 'seconds, or a duration: "5 min"'
        )
        if row.text("loss_budget")
        else jobs.loss_budget_s,
    )


def _steps(row: CsvRow) -> int:
    text = row.text("steps")
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= MOST_STEPS):
        raise row.wrong("steps", f"a whole number from 1 to {MOST_STEPS}")
    return int(text)


def _or(
    row: CsvRow, column: str, default: float, read: Callable[[str], float | None], high: float, what: str
) -> float:
    return _number(row, column, read, 0.0, high, what) if row.text(column) else default


def _number(
    row: CsvRow, column: str, read: Callable[[str], float | None], low: float, high: float, what: str
) -> float:
    value = read(row.text(column))
    if value is None or not low <= value <= high:
        raise row.wrong(column, f"{what}, from {low:g} to {high:g}")
    return value


def _bytes(text: str) -> float | None:
    try:
        return parse_size(text)
    except ValueError:
        return number_of(text)
