"""Paper A, P2: where a job goes. `select` scores destinations (eqs. 11 and 12), `tree_rates` finds what a path can carry. What is
learned of owners: `hazard` and `exposure` estimate how likely a host is to leave, `notices` whether its notice is long
enough, `joint_departures` which hosts leave with it, `hazard_states` what its state says; `owner_history` holds them all.
May import `network`, `topologies` and `controller.numerics` only. Begin with `select`.
"""
