"""Worlds in which a scenario is played.

`live` (namespaces and processes), `virtual` (a heap of events), `oracle` (virtual, with the trace known), `queue`
(paper B's queue alone). `played` is the result of any of them. May import `results` and below.
"""
