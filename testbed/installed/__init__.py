"""Services of a machine of its own: the agent that `reclaimnet agent install` makes, and what a coordinator's has alike.

May import the agent, the trust and the errors. Begin with `agent.py`, the process of the service. `machine.py` finds out what
there is, `edge.py` is the kernel's part, `unit.py` makes any service and takes it away again, `service.py` an agent's.
"""
