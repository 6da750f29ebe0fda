"""One scenario in both worlds: played on this machine's kernel and in virtual time, and held to each other.

May import everything below `experiments`. Begin with `comparison.py`, which says what is compared and how near is near
enough; `costs.py` reads from the live run's journal what the machinery took; `page.py` shows both runs side by side.
"""
