"""The live world: a campus in the kernel, one agent a host, one coordinator, research traffic, owners. Begin with
`run.py`.
"""
