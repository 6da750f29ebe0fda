"""A scenario many times: under several policies, with several seeds and values of its keys, in virtual time.

`plan` lists the runs, `run` has the engine play them, `play` plays one, `result` has the results: tables, intervals
over the seeds, a picture and a page. May import everything below. Begin with `plan`.
"""

from experiments.sweeps.plan import SweepPlan
from experiments.sweeps.result import SweepResult
from experiments.sweeps.run import run_sweep, sweep

__all__ = ["SweepPlan", "SweepResult", "run_sweep", "sweep"]
