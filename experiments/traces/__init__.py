"""What happens to a campus from outside during one run: jobs arrive, owners reclaim. Begin with `trace.py`; `generated.py`
draws a trace from a scenario, `recorded.py` reads one from a file. Nothing here depends on what the coordinator decides.
"""

from experiments.scenario.owners import OwnerEvent
from experiments.traces.counts import load_spot_trace
from experiments.traces.generated import generate
from experiments.traces.lifetimes import load_preemptions
from experiments.traces.paper_campus import paper_campus
from experiments.traces.recorded import load_trace, trace_of
from experiments.traces.trace import BackgroundTraffic, JobArrival, JobSpec, Trace

__all__ = [
    "BackgroundTraffic",
    "JobArrival",
    "JobSpec",
    "OwnerEvent",
    "Trace",
    "generate",
    "load_preemptions",
    "load_spot_trace",
    "load_trace",
    "paper_campus",
    "trace_of",
]
