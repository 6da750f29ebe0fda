"""Paper A, P2: where a job goes. `select` scores destinations (eqs. 11 and 12), `hazard` and `exposure` estimate how
likely a host is to leave, `tree_rates` finds what a path can carry. May import `network` and `controller.numerics` only.
Begin with `select`.
"""
