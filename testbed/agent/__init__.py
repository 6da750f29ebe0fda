"""The agent of one host.

`core` decides and is pure; `host` performs its decisions through `io`: sockets, processes, BPF maps; `config` is what
it needs to know. Begin with `core/events.py` and `core/effects.py`: what can happen to an agent, and what it can do.
"""
