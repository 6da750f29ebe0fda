"""Decisions of an agent: pure, a function (event, now) -> effects.

`agent` is that function; `running` (one job), `send_queue` (what is sent), `announced` (what it may receive), `stored`
(what is on disk), `speed` (of snapshots) and `lease` are its parts. Begin with `events` and `effects`: what may happen,
what may be done.
"""
