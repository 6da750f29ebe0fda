"""The systems of Table III on owners that others recorded: `owner_records` makes the runs, `traces` is the claim."""
