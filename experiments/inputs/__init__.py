"""experiments.inputs."""
