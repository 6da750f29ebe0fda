"""Closed forms of both papers, exact stationary numbers and lower bounds, for claims and tests.

Each file is one subject; each function names its theorem and raises `DomainError` outside its domain instead of returning NaN.
A formula that `controller.core` has is not written again. The package imports `controller.core`, `topologies`, numpy and scipy.

`laws` are distributions. `paper_b` (the opportunistic queue; hours): `costs` (Theorems 1-2), `waits` (Theorem 3, Corollaries,
Remarks), `markov` (Theorems 4-5), `single_slot`, `stationary` (exact, any laws), `lattice` (neither law is a clock), `bounds`
(over all policies), `targets`. `paper_a` (ReclaimNet; seconds, bytes): `theorems` 2 and 4, `least_cost` (a lower bound for
checkpoints on line). Begin with `laws`.
"""
