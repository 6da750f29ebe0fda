"""What a run is made from: `scenario` (a file's parameters), `traces` (what happens from outside), `job_specs` (from a
trace's job to a submission). May import `theory` and below. Begin with `scenario`.
"""
