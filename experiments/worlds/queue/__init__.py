"""Simulation of paper B's queue.

Jobs and spots are renewal processes; service is first come, first served. Admission depends on queue length and on the
age of the gap; waits end, and offers lapse. The decisions are `controller.core.queueing.replay`, the live queue's own;
here histories are drawn for it, and means get standard errors. `model` defines the simulation, `simulator` runs it on a
drawn `history`, `estimate` has its means. `cases` has the exact values for the cases of both papers, `ages` those of
rules that look at ages. `learners` and `controller_runs` follow controllers. `benchmarks.queue` compares it with two
general simulators. May import `controller`, `topologies` and `experiments.theory`.

Times are in the unit of the laws, hours for paper B. The kernel only adds and compares, so the ages and waits of a
`Rule` are in that unit here too, whatever their suffix. Begin with `simulator`.
"""
