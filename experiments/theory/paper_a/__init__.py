"""Closed forms of paper A: Theorems 2 and 4, and the least cost of checkpoints on line."""
