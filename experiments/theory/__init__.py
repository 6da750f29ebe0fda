"""The closed forms of both papers, exact stationary numbers and lower bounds: what claims and tests are held to.

Each file is one subject; each function names its theorem and refuses what lies outside its domain (`DomainError`) instead
of answering NaN. Where `controller.core` already has a formula, it is called, never written again. Imports
`controller.core`, `topologies`, numpy and scipy; only claims, tests and the command line import this package.

`laws` are distributions (scipy's, and the bath-tub). `paper_b` (opportunistic spot; hours): `costs` (Theorems 1-2),
`waits` (Theorem 3, Corollaries, Remarks), `markov` (Theorems 4-5), `single_slot`, `stationary` (exact, any laws), `lattice`
(where neither law is a clock), `bounds` and `bounds_by_hour` (over all policies), `targets`. `paper_a` (ReclaimNet; seconds,
bytes): `intervals` (P1), `least_cost` (what no choice of checkpoints on line can beat), `destinations` (P2), `isolation` (P3).
`check` evaluates a file of reference vectors by all of them. Begin with `laws`.
"""
