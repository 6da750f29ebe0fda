"""experiments.claims.paper_a."""
