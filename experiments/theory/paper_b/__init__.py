"""experiments.theory.paper_b."""
