"""Inputs of a run.

`scenario` (a file's parameters), `traces` (events from outside), `job_file` (a user's job), `job_specs` (submissions of
a trace's jobs), `replay_file` (to play a run again), `seeds`. May import `theory` and below. Begin with `scenario`.
"""
