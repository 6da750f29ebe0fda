"""The offline Oracle (paper A's baseline B6): the whole trace is known, and each window is a mixed-integer linear program.

`program` states the formulation, on a `problem` that `choices` writes (from the `future` of hosts and links, and
`transfer_times`), and answers with a `Window`. `replanner` has the `plan` played by the virtual world through `adapters`, so that
its losses are accounted like those of every other system; `run` is one such run. May import everything below `experiments`.
Begin with `program`.
"""

from experiments.worlds.oracle.run import OracleRun, run_oracle

__all__ = ["OracleRun", "run_oracle"]
