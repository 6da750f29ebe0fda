"""testbed.agent.core."""
