"""Making it: `netlink` (requests in batches), `linux` (system calls that Python lacks), `holders` (a process a namespace),
`fabric` (bridges), `programs` (BPF), `build` (all of it, in order), `readback` (what the kernel made, compared with the
plan). Begin with `build`.
"""
