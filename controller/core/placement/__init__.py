"""Paper A, P2: where a job goes.

`select` scores destinations (eqs. 11 and 12) by what paths can carry. `hazard` records
owners' lendings, departures and notices, and estimates from them how likely a host is to leave. A destination rule is
a function like `select.select`, and the column `select` of a policy's row (`policies.table`) names it;
`lifecycle.migration` and `offers` ask it. May import `network`, `topologies` and `controller.numerics` only. Begin with
`select`.
"""
