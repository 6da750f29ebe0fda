"""Making it: `linux` (system calls that Python lacks), `holders` (a process a namespace, by the program `holder`), `fabric`
(bridges) or `openvswitch` (programmed switches), `delay_line` (cables that delay), `programs` and `attachment` (BPF), `build`
(all of it, in order), `readback` (what the kernel made, compared with the plan). Begin with `build`.
"""
