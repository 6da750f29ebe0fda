"""The description of one run: a frozen `Scenario` in real units, its `files`, and the `demo`'s. Begin with `scenario.py`.

The parameters are declared in `controller.core.parameters`, `parts`, `owners` (random ones by `law`), `job` and `user_jobs`;
`topologies.fields` has their checks, texts in files and scaling.
"""

from controller.core.parameters import Protocol, Queue
from experiments.inputs.scenario.demo import demo_scenario
from experiments.inputs.scenario.files import dumps, examples, load, loads
from experiments.inputs.scenario.law import InverseLaw
from experiments.inputs.scenario.owners import OwnerEvent, Owners, Peak
from experiments.inputs.scenario.parts import BackgroundLaw, Jobs, ResearchFlow, Trust
from experiments.inputs.scenario.scenario import Scenario

__all__ = [
    "BackgroundLaw",
    "InverseLaw",
    "Jobs",
    "OwnerEvent",
    "Owners",
    "Peak",
    "Protocol",
    "Queue",
    "ResearchFlow",
    "Scenario",
    "Trust",
    "demo_scenario",
    "dumps",
    "examples",
    "load",
    "loads",
]
