"""A live run of a campus over several machines, each of which is a worker of a Dask scheduler.

`conductor` is the operator's side. It has an `actor` on each machine, which speaks to a child, the `part`. That builds its part
of the campus, and runs its agents, jobs, owners and research flows. The coordinator runs in the part that has its host. `trunks`
and `clocks` are measured before. `rehearsal` puts machines into namespaces of this one. May import `worlds` and below.
"""
