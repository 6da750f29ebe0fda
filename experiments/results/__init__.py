"""experiments.results."""
