"""Paper B: which jobs wait for spot capacity and which go to on-demand at once.

`queue` is the queue itself, `controllers` learn its level r = N + p, `replay` plays histories through it in machine
code. May import `network` and `controller.numerics` only. Begin with `queue`.
"""
