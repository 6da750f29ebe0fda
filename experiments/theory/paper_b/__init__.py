"""Closed forms of paper B: costs and delays of the queue under r, the best r, bounds. Begin with `costs`."""
