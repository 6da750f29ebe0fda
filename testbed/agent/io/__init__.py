"""Performance of an agent's effects, with trio; decides nothing.

`coordinator_link` (messages), `kernel_maps` (BPF maps), `processes` (jobs), `transfers` and `paced_send` (checkpoints),
`owner_socket`. Begin with `transfers`.
"""
