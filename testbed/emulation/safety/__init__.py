"""Safeguards that keep the machine clean.

- `ledger`: all that was made, on disk first.
- `living`: whose campus still stands.
- `settings`: sysctls, with what they were.
- `cleaning`: what a dead campus left.
- `interruption`: signals wait while something is half made.
- `observation`: what the kernel did meanwhile.

Begin with `ledger`.
"""
