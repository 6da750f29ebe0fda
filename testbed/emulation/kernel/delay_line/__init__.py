"""Cables with delay, jitter and loss: one C process a campus holds their frames.

`delay_line.c` describes how; `compile` makes it where it is used, as BPF objects are. `process` runs and instructs it;
`cut` puts cables through it. Begin reading at `delay_line.c`.
"""
