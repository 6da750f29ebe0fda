"""experiments.claims.framework."""
