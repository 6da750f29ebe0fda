"""What the coordinator knows and what can happen: `entities` (job, host, checkpoint, and the table of allowed transitions),
`cluster` (all of them, with derived tables), `events` in, `effects` out, `facts` for the journal. Decides nothing. May import
`policies` and below. Begin with `entities`."""
