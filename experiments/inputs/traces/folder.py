"""A whole trace as a folder of text files, to look at, to change, and to play again.

scenario.toml     what the trace was made for
owners.csv        `events`: time,host,event,notice,grace
jobs.csv          `jobs_csv`: time,job,payload,steps,step, ...; the scenario's own jobs stand in that
background.csv    `background_csv`: time and a column a flow; absent if there is none
cuts.csv          `cuts`: time,a,b,event,drain; absent if no cable goes down
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from experiments.inputs.scenario import Scenario, dumps
from experiments.inputs.scenario.parts import LinkEvent
from experiments.inputs.traces.background_csv import background_csv, parse_background
from experiments.inputs.traces.cuts import cuts_csv, parse_cuts
from experiments.inputs.traces.generated import arrivals, with_own_jobs
from experiments.inputs.traces.jobs_csv import jobs_csv, parse_jobs
from experiments.inputs.traces.owner_events_csv import events_csv, parse_events
from experiments.inputs.traces.timestamps import Moments
from experiments.inputs.traces.trace import Trace
from topologies import toml
from topologies.errors import SpecError
from topologies.writing import write_whole

T = TypeVar("T")
SCENARIO, OWNERS, JOBS, BACKGROUND = "scenario.toml", "owners.csv", "jobs.csv", "background.csv"
CUTS = "cuts.csv"


def write_trace(folder: Path, scenario: Scenario, trace: Trace) -> list[Path]:
    """The files of a trace in real units, written into a folder that exists; which."""
    texts = {
        SCENARIO: dumps(scenario),
        OWNERS: events_csv(trace.owner_events, trace.away),
        JOBS: jobs_csv(arrival for arrival in trace.arrivals if arrival.job.given is None),
    }
    if trace.background is not None:
        texts[BACKGROUND] = background_csv(trace.background)
    if trace.cuts:
        texts[CUTS] = cuts_csv(trace.cuts)
    for other in {BACKGROUND, CUTS} - texts.keys():
        (folder / other).unlink(missing_ok=True)  # of another trace that was here
    for name, text in texts.items():
        write_whole(folder / name, text)
    return [folder / name for name in texts]


def load_folder(folder: Path, scenario: Scenario) -> Trace:
    """The trace of a folder. Without a file of jobs they are the scenario's; without one of background or cuts there are none.

    SpecError says file, line, column, value and what is allowed.
    """
    moments = Moments(scenario.owners.day_start_s)
    hosts = [host.name for host in scenario.volunteers]
    recorded = _read(
        folder / OWNERS, lambda text: parse_events(text, hosts, folder.name, scenario.duration_s, moments)
    )
    jobs, background = arrivals(scenario), None
    if (folder / JOBS).exists():
        jobs = _read(
            folder / JOBS, lambda text: parse_jobs(text, scenario.jobs, scenario.duration_s, moments)
        )
        jobs = with_own_jobs(jobs, scenario)
    if (folder / BACKGROUND).exists():
        background = _read(folder / BACKGROUND, lambda text: parse_background(text, scenario.campus))
    found: tuple[LinkEvent, ...] = ()
    if (folder / CUTS).exists():
        found = _read(
            folder / CUTS, lambda text: parse_cuts(text, scenario.campus, scenario.duration_s, moments)
        )
    return Trace(recorded.origin, jobs, recorded.events, recorded.away, background, cuts=found)


def _read(file: Path, parse: Callable[[str], T]) -> T:
    text = toml.read_text(file, "a part of a trace (CSV)")
    try:
        return parse(text)
    except SpecError as error:
        raise error.within(str(file)) from None
