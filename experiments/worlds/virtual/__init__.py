"""The virtual campus: the coordinator's core and the agents' cores, unchanged, on a heap of events over a fluid network.

`world` performs the effects of the cores, on a `scheduler`, in an `environment` of `hosts`, a fluid `network` and `links`.
Activities: `workloads`, `transfers`, `connections`, `research`, `background`, `replicas`. Costs: `overheads`.
Faults: `faults`; restarts from a `journal`. Events left out because they change nothing: `heartbeat_elision`. Rules that
must hold: `invariants`.

May import everything below `experiments`, but nothing that waits: no trio, no sockets, no clock. Begin with `world.py`;
`run.py` plays a scenario and a trace and gives facts like a live run's journal.
"""

from experiments.worlds.virtual.faults import Failure, Faults
from experiments.worlds.virtual.overheads import Overheads
from experiments.worlds.virtual.run import VirtualRun, make_world, simulate
from experiments.worlds.virtual.world import VirtualWorld

__all__ = ["Failure", "Faults", "Overheads", "VirtualRun", "VirtualWorld", "make_world", "simulate"]
