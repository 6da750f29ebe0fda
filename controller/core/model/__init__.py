"""The coordinator's state and what changes it.

`entities` has job, host, checkpoint, flow, and the table of allowed transitions; `cluster` has all of them. `events`
go in, `effects` come out, `facts` are for the journal. Decides nothing. May import `policies` and below. Begin with
`entities`.
"""
