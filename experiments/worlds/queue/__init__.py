"""Simulation of paper B's queue: renewal jobs, renewal spots, first come first served, admission by queue length and by
the age of the gap, waits that end, offers that lapse. The decisions are `controller.core.queueing.replay`, the live
queue's own; here histories are drawn for it, and means get standard errors. `model` says what is simulated, `simulator`
runs it on a drawn `history`, `estimate` has its means, `cases` what theory says of the cases of both papers (`ages` of rules
that look at ages); `learners` and `controller_runs` follow controllers. `benchmarks.queue` sets it beside two general
simulators. May import `controller`, `topologies` and `experiments.theory`.

Times are in the unit of the laws, hours for paper B. The kernel only adds and compares, so the ages and waits of a `Rule`
are in that unit here too, whatever their suffix says. Begin with `simulator`.
"""
