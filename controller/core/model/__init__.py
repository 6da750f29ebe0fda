"""The coordinator's state and what changes it: `entities` (job, host, checkpoint, and the table of allowed transitions),
`cluster` (all of them), `open_flows` and `host_index` (what is derived from flows and hosts, kept in step by themselves),
`events` in, `effects` out, `facts` for the journal. Decides nothing. May import `policies` and below. Begin with `entities`."""
