"""controller.core.queueing."""
