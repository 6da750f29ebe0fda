"""Links by number, what they carry, and how flows share them: `links` (routes as columns), `bandwidth` (what is left of
each link), `capacity` (what is reserved, granted and lent of it),
`routing` (paths of pairs of hosts, and pinned routes), `max_min` and `sharing` (water-filling). May import
`controller.numerics` and `topologies` only. Begin with `links`.
"""
