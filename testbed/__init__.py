"""The body: hosts, links, agents, checkpoints, transfers, and the enforcement of rates. May import `topologies` and `bpf`.
Begin with `agent/core.py` for what an agent decides and `emulation/campus.py` for where it lives."""
