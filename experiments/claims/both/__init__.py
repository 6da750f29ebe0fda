"""Claims where both papers act at once: jobs that wait for lent GPUs or pay for rented ones, on hosts that are taken back."""
