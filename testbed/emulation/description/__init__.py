"""Description of what is to be built, before anything is.

`plan` (names, numbers, addresses), `link_requests` and `shaping` (requests to the kernel), `openflow` (messages to a
controller of switches). Begin with `plan`.
"""
