"""controller.core.checkpointing."""
