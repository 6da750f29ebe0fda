"""What happens to a campus from outside during one run: jobs arrive, owners reclaim. Begin with `trace.py`; `generated.py`
draws a trace from a scenario, `recorded.py` reads one from a file. Nothing here depends on what the coordinator decides.
"""

from experiments.inputs.scenario.owners import OwnerEvent
from experiments.inputs.traces.generated import generate
from experiments.inputs.traces.paper_campus import paper_campus
from experiments.inputs.traces.recorded import load_trace, trace_of
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
    "trace_of",
]
