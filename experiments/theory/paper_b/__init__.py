"""Delays and costs of paper B's queue under r, exact, and the best r. Begin with `single_slot`."""
