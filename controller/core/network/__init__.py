"""Links by number, what they carry, and how flows share them: `links` (routes as columns), `bandwidth` (what is left of
each link), `counted` (others' traffic, from counters of switches), `max_min` and `sharing` (water-filling). May import
`controller.numerics` only. Begin with `links`.
"""
