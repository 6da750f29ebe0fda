"""testbed.emulation.kernel."""
