"""A scenario in both worlds: played on this machine's kernel and in virtual time, and compared.

May import everything below `experiments`. Begin with `comparison.py`, which defines the comparison and its tolerances.
`costs.py` reads the overheads of the machinery from the live run's journal.
"""
