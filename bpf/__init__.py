"""Enforcement in the kernel: three BPF programs in C (`src/`), for what leaves a host, enters it, or its switch takes from it.

They are compiled ahead of time (`build`, kept by `caches`), loaded and driven from here. `observer` records what the
kernel does. Imports no other package of the project. Begin with `src/reclaim.h`, the contract of kernel and Python, and
`layout`, its mirror.

`objects` loads and pins a host's programs, `ports` its switch's side; `maps` (flows, counters), `meters` and `switch` (the
owner's) are typed views of shared `memory`; `library` is libbpf, `btf` the kernel's types.
"""
