"""Closed forms of both papers, exact stationary numbers and lower bounds, for claims and tests.

Each file is one subject; each function names its theorem and raises `DomainError` outside its domain instead of returning NaN.
A formula that `controller.core` has is not written again. The package imports `controller.core`, `topologies`, numpy and scipy.

`laws` are distributions. `paper_b` (the opportunistic queue; hours): `single_slot`, `stationary` (exact numbers under r) and
`targets`. `paper_a` (ReclaimNet; seconds, bytes): `theorems` 2 and 4, `least_cost` (a lower bound for checkpoints on line).
Begin with `laws`. Theorems that the program does not use stand beside the tests.
"""
