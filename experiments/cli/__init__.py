"""experiments.cli."""
