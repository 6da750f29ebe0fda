"""The live world: a campus in the kernel, one agent a host, one coordinator (`world`).

Around it are `research` traffic, `owners` and the `probe` of their switches, and an `operator` that sends requests.
`network` reports trunks that die or come back; `usage` measures the machine. Begin with `run.py`.
"""
