"""The offline Oracle (paper A's baseline B6): the whole trace is known, and each window is a mixed-integer linear program.

May import everything below `experiments`. Begin with `program.py`, which states the formulation; `menu.py` writes down
what there is to choose from; `player.py` has the answer played by the virtual world, so that its losses are accounted like
everybody's.
"""

from experiments.worlds.oracle.run import OracleRun, run_oracle
from experiments.worlds.oracle.windows import Window

__all__ = ["OracleRun", "Window", "run_oracle"]
