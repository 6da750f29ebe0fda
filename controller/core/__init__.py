"""The decisions, and nothing else: pure functions and small pure state. Time, draws and measurements are
arguments; answers are values. May import `topologies` (what a campus is), `testbed`'s messages, units and
errors; never a clock, a socket or a thread.

Paper A: `checkpointing` (P1), `placement` (P2), `admission` (P3), on `sharing`, `hazard` and `bandwidth`.
Paper B: `queue`. `policies` is the table of named combinations. Begin with `sharing`, which three of them
stand on; `coordinator` uses them all."""
