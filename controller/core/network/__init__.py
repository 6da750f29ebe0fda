"""Links by number, what they carry, and how flows share them.

`links` has routes as columns, `capacity` what of each link may be reserved, granted and lent. `routing` has paths of
pairs of hosts and pinned routes, `max_min` water-filling. May import `controller.numerics` and `topologies` only.
Begin with `links`.
"""
