"""testbed.agent.io."""
