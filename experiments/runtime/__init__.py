"""How programs run here: `workers` (processes for sweeps), `native` (the virtual campus as machine code), `revision`
(which text of the project). Imports nothing of `experiments` above it.
"""
