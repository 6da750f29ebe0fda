"""What the kernel enforces: three BPF programs in C (`src/`: what leaves a host, what enters it, what its switch takes from it),
compiled ahead of time, and the code that loads and talks to them; two observers of what the kernel does, one of them bcc's
(`second_observer`). Imports no other package of the project. Begin
with `src/reclaim.h`, the contract of kernel and Python."""
