"""experiments.worlds."""
