"""The offline Oracle (paper A's baseline B6): the whole trace is known, and each window is a mixed-integer linear program.

May import everything below `experiments`. Begin with `program.py`, which states the formulation; `choices.py` writes down
what there is to choose from; `replanner.py` has the answer played by the virtual world, so that its losses are accounted like
those of every other system; `bound.py` says how little any choice of checkpoints could have lost.
"""

from experiments.worlds.oracle.run import OracleRun, run_oracle
from experiments.worlds.oracle.windows import Window

__all__ = ["OracleRun", "Window", "run_oracle"]
