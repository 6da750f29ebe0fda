"""What a researcher runs. From the top: `cli` (a module a command), `claims` (tables and figures of both papers),
`benchmarks`, `storms` and `compare`, `worlds` (live in the kernel, virtual on a heap, the oracle, the queue alone),
`results` (what a run was, from its journal), `inputs` (scenarios and traces), `theory` (closed forms), `runtime` (worker
processes, machine code). import-linter holds these floors. May import everything below. Begin with `cli/main.py`.
"""
