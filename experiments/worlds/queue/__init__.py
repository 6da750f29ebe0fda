"""Simulation of paper B's queue.

Jobs and spots are renewal processes; service is first come, first served. Admission depends on queue length and on the
age of the gap; waits end, and offers lapse. The decisions are `controller.core.queueing.replay`, the live queue's own;
here histories are drawn for it, and means get standard errors. `simulator` runs a model on a drawn `history`; `cases`
has the exact values for the cases of both papers. `controller_runs` follows controllers. `benchmarks.queue` measures
speed and exactness. May import `controller`, `topologies` and `experiments.theory`.

Times are in the unit of the laws, hours for paper B. The kernel only adds and compares, so the ages and waits of a
`Rule` are in that unit here too, whatever their suffix. Begin with `simulator`.
"""
