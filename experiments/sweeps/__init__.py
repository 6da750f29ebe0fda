"""A scenario many times: under several policies, with several seeds and values of its keys, in virtual time.

`plan` says which runs, `run` has them played where the engine says, `play` plays one, `result` is what came of them: tables,
intervals over the seeds, a picture and a page. May import everything below. Begin with `plan`.
"""

from experiments.sweeps.plan import SweepPlan
from experiments.sweeps.result import SweepResult
from experiments.sweeps.run import run_sweep, sweep

__all__ = ["SweepPlan", "SweepResult", "run_sweep", "sweep"]
