"""The virtual campus: the coordinator's core and the agents' cores, unchanged, on a heap of events over a fluid network.

`world` performs what the cores say, on a `scheduler`, in an `environment` of `hosts`, `fluid` flows and `links`. What
happens: `workloads`, `transfers`, `connections`, `owners`, `research`, `background`, `replicas`; what it
costs: `overheads`; what goes wrong: `faults`, `process_faults`, `restarts` (from a `journal`); what kernels count: `egress`,
`counters`; what is left out because it changes nothing: `heartbeat_elision`, `tick_elision`; what must hold: `ground_truth`,
`invariants`.

May import everything below `experiments`, but nothing that waits: no trio, no sockets, no clock. Begin with `world.py`;
`run.py` plays a scenario and a trace and gives facts like a live run's journal.
"""

from experiments.worlds.virtual.faults import LOST, Failure, Faults
from experiments.worlds.virtual.overheads import Overheads
from experiments.worlds.virtual.run import VirtualRun, make_world, simulate
from experiments.worlds.virtual.world import VirtualWorld

__all__ = ["LOST", "Failure", "Faults", "Overheads", "VirtualRun", "VirtualWorld", "make_world", "simulate"]
