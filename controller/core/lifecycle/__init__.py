"""controller.core.lifecycle."""
