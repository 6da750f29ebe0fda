"""The live world: a campus in the kernel, one agent a host, one coordinator (`world`).

Around it: `research` traffic, `owners` and the `probe` of their switches, an `operator` that sends requests, `network`
(the counters and ports of switches), and the `usage` of the machine. Begin with `run.py`.
"""
