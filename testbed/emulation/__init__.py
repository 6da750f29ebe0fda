"""The live campus: network namespaces, bridges, shaped links and processes, built through Mininet's interface.

From the ground up: `netlink` (requests to the kernel in batches) and `safety` (what was made is on disk first, and removed);
`description`, what will be built, as data; `kernel`, which makes it; `nodes` (Mininet's hosts and links over it), `processes`
(forked in them) and `capabilities` (what the machine can do); `campus`, the one class that users need; `fidelity` (whether a
run may be believed). Each imports what stands before it. Begin with `campus`. May import testbed's leaves, topologies, bpf and
mininet; never controller or experiments.
"""
