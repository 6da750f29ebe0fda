"""What one run is: a frozen `Scenario` in real units, its files, and the demo's. Begin with `scenario.py`; the parameters
are declared in `parts.py` and `owners.py`. Imports `topologies` only."""

from experiments.scenario.background import Background
from experiments.scenario.demo import demo_scenario
from experiments.scenario.files import dumps, examples, load, loads
from experiments.scenario.law import Law
from experiments.scenario.owners import OwnerEvent, Owners, Peak
from experiments.scenario.parts import Jobs, Protocol, Queue, ResearchFlow
from experiments.scenario.scenario import Scenario

__all__ = [
    "Background",
    "Jobs",
    "Law",
    "OwnerEvent",
    "Owners",
    "Peak",
    "Protocol",
    "Queue",
    "ResearchFlow",
    "Scenario",
    "demo_scenario",
    "dumps",
    "examples",
    "load",
    "loads",
]
