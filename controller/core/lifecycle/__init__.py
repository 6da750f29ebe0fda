"""What each event does to jobs and hosts: one family of events a module, each a function (cluster, event) -> effects.
`membership` (hosts register, fall silent, are reclaimed and lent), `dispatch` (attempts begin, are interrupted, resume),
`job_reports` and `checkpoints` (what agents say), `migration` (P2 and P3 at work), `protection` (P1 at work), `grants`
(who may send how fast), `second_copy` (the vault), `resync` (after a restart). May import `model` and below. Begin with
`membership`.
"""
