"""Comparison of the systems of Table III beyond the papers: on recorded owners.

`traces` plays owners that others recorded (`owner_records` is a run); `ranking` judges, by what
`paper_a.campus_result` keeps of each run.
"""
