"""Paper A, P1: interval and rate of each job's checkpoints.

`planner` has eq. 9, Lemmas 1 and 2, the closed form and the baselines' periods. The column `plan` of a policy's row
(`policies.table`) names the planner; `lifecycle.protection` plans for all jobs at once. May import `network` and
`controller.numerics` only.
"""
