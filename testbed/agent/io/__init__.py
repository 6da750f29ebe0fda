"""Performance of an agent's effects: `coordinator_link` (messages), `kernel_maps` (BPF maps), `processes` (jobs),
`transfers` and `paced_send` (checkpoints), `owner_socket`. With trio; decides nothing. Begin with `transfers`.
"""
