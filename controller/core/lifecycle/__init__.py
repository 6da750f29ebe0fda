"""What each event does to jobs and hosts: one family of events a module, each a function (cluster, message) that puts what
follows into the cluster's outbox. May import `model` and below. Begin with `membership`, then `conclusion`.

Hosts: `membership` (they register, fall silent, are reclaimed and lent), `resync` (all are heard after a restart).
Jobs: `offers` (which job gets which GPU), `attempts` (one attempt on one host),
`job_reports` (what agents say of jobs), `cancellation`, `waiting` (for a word, and the way out when none comes).
P1: `protection` (standbys, intervals, rates), `checkpoint_plans` (its inputs and answers in columns), `checkpoints` (which hosts
hold what), `second_copy` (the vault), `rollforward` (a better checkpoint comes into reach).
P2 and P3: `migration`, `candidates` (hosts as P2 sees them).
Links: `grants` (which host may send how fast), `announcements` (what receivers expect), `link_changes` (cables, and the routes
over them), `ways` (of a network with several paths).
All: `conclusion` (what every event ends with), `changes` (which numbers are worth telling), `status` (for operators).
"""
