"""The coordinator's state and what changes it: `entities` (job, host, checkpoint, and the table of allowed transitions),
`cluster` (all of them), `open_flows` (with what is derived from them), `events` in, `effects` out, `facts` for the journal.
Decides nothing. May import `policies` and below. Begin with `entities`."""
