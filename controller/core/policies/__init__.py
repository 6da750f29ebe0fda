"""controller.core.policies."""
