"""What happens to a campus from outside during one run: jobs arrive, owners reclaim. Begin with `trace.py`;
`generated.py` draws a trace from a scenario (`exact_counts`, `background`, `cuts`, by `streams` of random numbers),
`paper_campus` is paper A's, `recorded.py` reads one from a file: `availability_counts`, `machines`, `lifetimes`, or a
user's own (`folder`: `jobs_csv`, `owner_events_csv`, `background_csv`), over `csv_rows` and `timestamps`.
`reclaim_law` has the hazard that generated owners follow. `achieved` says what a trace has of the paper's
measurements, `doubts` what it does not show. Nothing here depends on what the coordinator decides.
"""

from experiments.inputs.scenario.owners import OwnerEvent
from experiments.inputs.traces.generated import generate
from experiments.inputs.traces.paper_campus import paper_campus
from experiments.inputs.traces.recorded import load_trace, records_of, trace_of
from experiments.inputs.traces.trace import (
    BackgroundTraffic,
    JobArrival,
    JobDraw,
    Trace,
)

__all__ = [
    "BackgroundTraffic",
    "JobArrival",
    "JobDraw",
    "OwnerEvent",
    "Trace",
    "generate",
    "load_trace",
    "paper_campus",
    "records_of",
    "trace_of",
]
