"""What is to be built, before anything is: `plan` (names, numbers, addresses), `link_requests` and `shaping` (what the
kernel is asked for), `openflow` (what a controller of switches is told). Begin with `plan`.
"""
