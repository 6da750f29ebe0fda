"""controller.core.network."""
