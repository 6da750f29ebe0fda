"""The programs that a researcher runs.

The floors, from the top; import-linter holds them:

- `cli` (a module a command) and `api` (the same from Python);
- `claims` (tables and figures of both papers), `benchmarks`, `storms`, `compare` and `sweeps`;
- `worlds`: live in the kernel, virtual on a heap, the oracle, the queue alone;
- `results` (a run's figures, from its journal), `inputs` (scenarios and traces);
- `theory` (closed forms), `runtime` (worker processes).

They may import everything below. Begin with `cli/main.py`.

Python programs use `from experiments import Scenario, simulate` and the other names of `__all__`; see docs/api.md. Each is
imported when it is first used: `reclaimnet reclaim` passes through here.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from experiments.api import RunResult as RunResult
    from experiments.api import run_live as run_live
    from experiments.api import simulate as simulate
    from experiments.inputs.scenario import InverseLaw as InverseLaw
    from experiments.inputs.scenario import Jobs as Jobs
    from experiments.inputs.scenario import Owners as Owners
    from experiments.inputs.scenario import Peak as Peak
    from experiments.inputs.scenario import Protocol as Protocol
    from experiments.inputs.scenario import Queue as Queue
    from experiments.inputs.scenario import ResearchFlow as ResearchFlow
    from experiments.inputs.scenario import Scenario as Scenario
    from experiments.inputs.scenario import demo_scenario as demo_scenario
    from experiments.inputs.scenario import load as load_scenario  # noqa: F401
    from experiments.inputs.traces import JobArrival as JobArrival
    from experiments.inputs.traces import JobDraw as JobDraw
    from experiments.inputs.traces import OwnerEvent as OwnerEvent
    from experiments.inputs.traces import Trace as Trace
    from experiments.inputs.traces import generate as generate
    from experiments.sweeps import SweepResult as SweepResult
    from experiments.sweeps import sweep as sweep

_PLACES = {
    "InverseLaw": "experiments.inputs.scenario",
    "JobArrival": "experiments.inputs.traces",
    "JobDraw": "experiments.inputs.traces",
    "Jobs": "experiments.inputs.scenario",
    "OwnerEvent": "experiments.inputs.traces",
    "Owners": "experiments.inputs.scenario",
    "Peak": "experiments.inputs.scenario",
    "Protocol": "experiments.inputs.scenario",
    "Queue": "experiments.inputs.scenario",
    "ResearchFlow": "experiments.inputs.scenario",
    "RunResult": "experiments.api",
    "Scenario": "experiments.inputs.scenario",
    "SweepResult": "experiments.sweeps",
    "Trace": "experiments.inputs.traces",
    "demo_scenario": "experiments.inputs.scenario",
    "generate": "experiments.inputs.traces",
    "load_scenario": "experiments.inputs.scenario",
    "run_live": "experiments.api",
    "simulate": "experiments.api",
    "sweep": "experiments.sweeps",
}
__all__ = [*_PLACES]


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), "load" if name == "load_scenario" else name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
