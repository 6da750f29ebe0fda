"""Measurements of the testbed itself: one file a benchmark, each writes JSON and a picture. `reclaimnet measure` lists them.

May import `worlds` and below. Begin with `tables`."""
