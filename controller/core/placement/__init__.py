"""Paper A, P2: where a job goes. `select` scores destinations (eqs. 11 and 12), `tree_rates` says what a path can carry. What is
learned of owners: `hazard` and `exposure` estimate how likely a host is to leave, `owner_history` adds whether its notice is long
enough. A destination rule is a function like `select.select`, and the column `select` of a policy's row (`policies.table`) names
it; `lifecycle.migration` and `offers` ask it. May import `network`, `topologies` and `controller.numerics` only. Begin with
`select`.
"""
