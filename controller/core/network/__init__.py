"""Links by number, what they carry, and how flows share them.

`links` has links as columns, what of each may be reserved, granted and lent, paths of pairs of hosts and pinned routes;
`max_min` has water-filling. May import `controller.numerics` and `topologies` only.
Begin with `links`.
"""
