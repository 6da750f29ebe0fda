"""The live world: a campus in the kernel, one agent a host, one coordinator (`world`), `research` traffic, `owners` and the
`probe` of their switches, an `operator` who asks, `network` (what switches see), and what it all takes (`usage`).
Begin with `run.py`.
"""
