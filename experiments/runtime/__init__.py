"""experiments.runtime."""
