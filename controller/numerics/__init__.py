"""controller.numerics."""
