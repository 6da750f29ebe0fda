"""experiments.theory.paper_a."""
