"""What keeps a run honest and the machine clean: `capabilities` (what the machine can do), `settings` (sysctls, with what
they were), `ledger` (all that was made, on disk first), `cleaning` (what a dead campus left), `interruption` (signals wait
while something is half made), `observation` (what the kernel did meanwhile), `fidelity` (whether a run may be believed).
Begin with `ledger`.
"""
