"""experiments.claims.paper_b."""
