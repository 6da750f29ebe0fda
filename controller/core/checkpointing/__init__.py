"""Paper A, P1: interval and rate of each job's checkpoints. `intervals` has eq. 9, Lemma 1, Lemma 2 and the baselines' periods,
and `planner` the plan for jobs that share links. The column `plan` of a policy's row (`policies.table`) names the planner;
`lifecycle.protection` plans for all jobs at once. May import `network` and `controller.numerics` only. Begin with `intervals`.
"""
