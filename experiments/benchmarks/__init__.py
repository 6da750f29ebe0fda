"""Measurements of the testbed itself: one file a benchmark, each writes JSON and a picture; begin with `commands.py`."""
