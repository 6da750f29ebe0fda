"""Measurements of the testbed itself: one file a benchmark, each writes JSON and a picture. `reclaimnet measure` lists them,
and `cli/measure.py` says which file is which command's.

Shared: `results` (writing), `goals`, `timing`, `tables`, `one_trunk` and `rates_network` (small networks to measure on),
`attacks` and `syn_storm` (what is sent), `together` (`measure all`); `*_peer` is another's simulator of the same. May import
`worlds` and below. Begin with `tables`."""
