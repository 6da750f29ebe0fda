"""Consequences of events for jobs and hosts: one family of events a module, each a function (cluster, message) that puts effects
into the cluster's outbox. May import `model` and below. Begin with `membership`, then `finish`.

Hosts: `membership` (they register, fall silent, are reclaimed and lent), `resync` (all agents are awaited after a restart).
Jobs: `offers` (which job gets which GPU), `attempts` (one attempt on one host), `job_reports` (messages of agents about jobs),
`cancellation`, `timeouts` (of jobs that wait for a report).
P1: `protection` (standbys, intervals, rates), `checkpoint_plans` (its inputs and answers in columns), `checkpoints` (which hosts
hold what), `second_copy` (the vault), `rollforward` (a better checkpoint comes into reach).
P2 and P3: `migration`, `candidates` (hosts as P2 sees them).
Links: `grants` (which host may send how fast), `link_changes` (cables, and the routes over them), `ways` (of a network with
several paths).
All: `finish` (the end of every event), `status` (for operators).
"""
