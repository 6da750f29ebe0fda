"""The agent of one host. `core` decides and is pure; `host` performs its decisions with trio, sockets, processes and BPF maps.
Begin with `events.py` and `effects.py`: what can happen to an agent, and what it can do."""
