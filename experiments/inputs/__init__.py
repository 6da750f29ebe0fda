"""Inputs of a run: `scenario` (a file's parameters), `traces` (events from outside), `job_file` (a user's job),
`job_specs` (from a trace's job to a submission), `replay_file` (to play a run again), `seeds`. May import `theory` and
below. Begin with `scenario`.
"""
