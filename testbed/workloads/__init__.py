"""Jobs: what a workload is, those that come with the testbed, and the process that a job runs in.

`base.py` is all that a third party needs: subclass `Workload` and name it "module:Class". `synthetic` proves its state,
`torch_training` trains (`torch_copy` copies its state, `torch_file` lays it out).

`runner.py` (with `link`) is the inside of a job's process and imports no trio: it starts fast. `process.py` is the
agent's side of it, `messages` are between both. `launch` and `fork_server` begin a process, `lease` ends it, `output`
is where it writes. `copying` and `memory` take snapshots beside a job that goes on.

Executables: `executable` in one of three ways, `contained`, `archive` (its folder as a file), `criu`. `submission` asks
beforehand what an agent could run. This file imports nothing. May import `testbed.framing`, `testbed.errors` and
`topologies.units`.
"""
