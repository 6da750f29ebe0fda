#!/usr/bin/env python3
"""A program that knows nothing of checkpoints: how many primes lie below a hundred thousand, one number at a time."""

import time

found = 0
for number in range(2, 100_000):
    if all(number % divisor for divisor in range(2, int(number**0.5) + 1)):
        found += 1
    if number % 1000 == 0:
        print(f"{found} primes up to {number}", flush=True)
        time.sleep(0.2)
print(f"in all {found}")
