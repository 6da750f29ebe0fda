"""testbed.emulation.safety."""
