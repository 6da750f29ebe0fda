"""Inputs of a run.

`scenario` (a file's parameters), `traces` (events from outside), `job_file` (a user's job), `seeds`. May import `theory`
and below. Begin with `scenario`.
"""
