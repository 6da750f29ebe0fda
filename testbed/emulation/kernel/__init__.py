"""Construction of a planned campus in the kernel.

`holders` (a process a namespace, by the program `holder`), `fabric` (bridges) or `openvswitch` (programmed switches),
`delay_line` (cables that delay), `programs` and `attachment` (BPF). `build` makes all of it, in order; `readback`
compares what the kernel made with the plan. `helper` runs a program beside the campus. Begin with `build`.
"""
