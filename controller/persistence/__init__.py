"""controller.persistence."""
