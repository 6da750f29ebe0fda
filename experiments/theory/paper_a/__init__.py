"""Closed forms of paper A: checkpoint intervals, destinations, isolation. May import `controller.core` and `laws`."""
