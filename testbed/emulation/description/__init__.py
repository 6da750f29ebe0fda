"""testbed.emulation.description."""
