"""The agent on a machine of its own, as a service of systemd that `reclaimnet agent install` makes.

May import the agent, the trust and the errors. Begin with `agent.py`, the process of the service. `machine.py` finds out what
there is, `edge.py` is the kernel's part, `service.py` installs and takes away again.
"""
