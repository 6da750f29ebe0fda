"""controller.core.model."""
