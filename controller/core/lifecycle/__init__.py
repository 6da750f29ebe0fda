"""What each event does to jobs and hosts: one family of events a module, each a function (cluster, message) that puts what
follows into the cluster's outbox. `membership` (hosts register, fall silent, are reclaimed and lent), `offers` (which job
gets which GPU), `attempts` (of a job on a host), `job_reports` and `checkpoints` (what agents say), `migration` (P2 and P3
at work), `protection` (P1 at work), `cancellation` (a user wants a job no more), `grants` (which host may send how fast),
`link_changes` (cables, and the routes over them), `conclusion` (what every event ends with), `second_copy` (the vault),
`resync` (after a restart). May import `model` and below. Begin with `membership`, then `conclusion`.
"""
