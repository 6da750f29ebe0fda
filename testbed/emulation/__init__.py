"""The live campus: network namespaces, bridges, shaped links and processes, built through Mininet's interface.

`description` is what will be built, as data; `kernel` makes it; `safety` keeps a run honest and the machine clean. `campus`
is the one class that users need, `nodes` Mininet's hosts and links over it, `processes` what is forked in them. Begin with
`campus`. May import testbed's leaves, topologies, bpf and mininet; never controller or experiments.
"""
