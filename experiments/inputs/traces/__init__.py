"""Events from outside during one run: jobs arrive, owners reclaim. Begin with `trace.py`.

`generated` draws a trace from a scenario (`exact_counts`, `background`, by `streams` of random numbers), `paper_campus`
is paper A's, `recorded` has owners from files: `availability_counts`, `lifetimes`, `owner_events`.
`reclaim_law` has the hazard that generated owners follow. Nothing here depends on the
coordinator's decisions.
"""

from experiments.inputs.scenario.job import JobArrival, JobDraw
from experiments.inputs.scenario.owners import OwnerEvent
from experiments.inputs.traces.generated import announced, generate
from experiments.inputs.traces.paper_campus import paper_campus
from experiments.inputs.traces.recorded import check_hosts, records_of, trace_of
from experiments.inputs.traces.trace import BackgroundTraffic, Trace

__all__ = [
    "BackgroundTraffic",
    "JobArrival",
    "JobDraw",
    "OwnerEvent",
    "Trace",
    "announced",
    "check_hosts",
    "generate",
    "paper_campus",
    "records_of",
    "trace_of",
]
