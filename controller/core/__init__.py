"""The decisions, and nothing else: pure functions and small pure state.

Time, draws and measurements are arguments; answers are values. May import `topologies`, `controller.numerics`, and
`testbed`'s messages, units and errors; never a clock, a socket or a thread.

From the top: `coordinator` (event in, effects out) calls `lifecycle` (what an event means for jobs and hosts), which reads
and changes `model` (the cluster: what the coordinator believes) and asks `policies` (a row for each system) which theory
to follow: `queueing` (paper B), `checkpointing` (P1), `placement` (P2), `admission` (P3). These four know neither the
cluster nor one another; they stand on `network` (links by number, and how they are shared). import-linter holds these
floors. `ticks` has the times at which all is looked at again. `status` is the operators' view. Begin with `coordinator`, or
with the theory you came for.
"""
