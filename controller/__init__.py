"""The control plane. `core` decides and is pure; `host` performs the decisions over sockets; `journal` remembers. May import
`testbed` and below. Begin with `core/coordinator.py`."""
