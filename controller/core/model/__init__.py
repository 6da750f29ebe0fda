"""What the coordinator knows and what can happen: `entities` (job, host, checkpoint, and the table of allowed transitions),
`cluster` (all of them, with derived tables), `occupants` (jobs on volunteers, as columns), `events` in, `effects` out,
`facts` for the journal, `witness` (to whom a decision shows what it was made from). Decides nothing. May import `policies`
and below. Begin with `entities`."""
