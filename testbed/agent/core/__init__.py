"""What an agent decides: pure, a function (event, now) -> effects. `agent` is that function; `running` (one job),
`outbound` (what is sent), `stored` (what is on disk) and `lease` are its parts. Begin with `events` and `effects`: what
may happen, what may be done.
"""
