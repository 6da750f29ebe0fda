"""The control plane.

`core` decides and is pure; `numerics` is its arithmetic.

`process` is the coordinator as a process: `host` performs the core's effects over sockets, `persistence` keeps its
state, `load` times decisions. `network_link` connects to the controller of programmed switches (`openflow`, a process
of its own). `user_policies` finds a user's rows, `warm_up` compiles. May import `testbed` and below. Begin with
`core/coordinator.py`.
"""
