"""Consequences of events for jobs and hosts, one family of events a module.

Each is a function (cluster, message) that puts effects into the cluster's outbox. May import `model` and below. Begin
with `membership`, then `coordinator.finish_event`.

- Hosts: `membership` (lost, silent, reclaimed, lent), `reconcile` (what agents report against what was decided
  for them: registrations, restarts, timeouts).
- Jobs: `offers` (which job gets which GPU), `attempts` (hosts as P2 sees them, one attempt on one host).
- Jobs' events: `job_events` (reports of agents, orders of users, better checkpoints in reach).
- P1: `protection` (standbys, intervals, rates), `checkpoints` (which hosts hold what), `second_copy` (the vault).
- P2 and P3: `migration`.
- Links: `grants` (which host may send how fast), `link_changes` (cables, and the routes over them).
"""
