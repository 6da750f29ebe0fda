"""Comparisons of the systems of Table III beyond the papers: on recorded owners, and on other campuses.

`traces` plays owners that others recorded (`owner_records` is a run), `campuses` other campuses. `ranking` judges
both, by the figures that `run_figures` keeps of each run.
"""
