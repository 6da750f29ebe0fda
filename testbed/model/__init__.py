"""Models of the kernel in pure Python, for the virtual campus: `network`, flows that share links.

No clock, no socket, no bpf: times and bytes come in as arguments.
"""
