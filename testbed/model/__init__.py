"""What the kernel does, in pure Python, for the virtual campus and for tests. No clock, no socket, no bpf: times and bytes
come in as arguments. Begin with `bucket.py`."""
