"""controller.core.placement."""
