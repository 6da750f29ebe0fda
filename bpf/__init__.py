"""What the kernel enforces: three BPF programs in C (`src/`: what leaves a host, what enters it, what its switch takes from
it), compiled ahead of time (`build`, kept by `caches`), and the code that loads and talks to them; two observers of what the
kernel does, one of them bcc's. Imports no other package of the project. Begin with `src/reclaim.h`, the contract of kernel
and Python, and `layout`, its mirror.

`objects` loads and pins a host's programs, `ports` its switch's side; `maps` (flows, counters), `meters` and `switch` (the
owner's) are typed views of shared `memory`; `library` is libbpf. `observer` and `btf` (the kernel's types), `second_observer`
and `bcc_counts`. `testrun` runs a program on a packet."""
