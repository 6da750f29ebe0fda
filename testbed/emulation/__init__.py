"""The live campus: network namespaces, bridges, shaped links and processes, built through Mininet's interface.

Begin with `campus` (the one class that users need) and `plan` (what will be built, as data). `linux` and `netlink` are the
only files that know system calls and socket messages; `ledger` remembers on disk what must be removed after a crash. May
import testbed's leaves, topologies, bpf and mininet; never controller or experiments.
"""
