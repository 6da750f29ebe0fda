"""What the kernel enforces: two BPF programs in C (`src/`), compiled ahead of time, and the code that loads, attaches and
talks to them. Imports no other package of the project. Begin with `src/reclaim.h`, the contract of kernel and Python."""
