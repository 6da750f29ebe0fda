"""Figures of paper B (opportunistic spot scheduling).

`learning` has the cases of each figure, and runs them; `learning_checks` judges. `learning_runs` is one run.
Begin with `learning`.
"""
