"""controller.core.admission."""
