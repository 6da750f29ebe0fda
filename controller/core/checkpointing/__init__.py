"""Paper A, P1: how often each job checkpoints. `intervals` has eq. 9, Lemma 1 and Lemma 2, `cost` the objective, `planner`
the plan for jobs that share links, which `dual_newton` solves from `contention` and `cold_start`, `loss_budgets` what a
job may lose, `second_level` how often a second copy is worth it. The column `plan` of a policy's row (`policies.table`) says
which of them plans; `lifecycle.protection` asks it for all jobs at once and tells each its interval. May import `network` and
`controller.numerics` only. Begin with `intervals`.
"""
