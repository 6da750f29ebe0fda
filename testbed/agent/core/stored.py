"""What an agent knows to be on its host's disk: completed checkpoints, of its own jobs and of others'."""

from __future__ import annotations

from testbed.messages import StoredCheckpoint
from testbed.ranks import superseded


class StoredCheckpoints(dict[tuple[str, int], StoredCheckpoint]):
    """By job and sequence."""

    def put(self, checkpoint: StoredCheckpoint) -> None:
        """Note that it is there, and that what is of no use beside it is not."""
        job, arrived = checkpoint.job, checkpoint.sequence
        self[job, arrived] = checkpoint
        steps = {number: known.step for (name, number), known in self.items() if name == job}
        for sequence in superseded(job, steps, arrived):
            del self[job, sequence]

    def numbers(self, job: str) -> set[int]:
        """Sequences of a job's. Other threads may ask."""
        return {sequence for name, sequence in list(self) if name == job}

    def forget(self, job: str, before: int) -> None:
        """Drop those of the job with a sequence below `before`."""
        for key in [key for key in self if key[0] == job and key[1] < before]:
            del self[key]

    def listed(self) -> list[StoredCheckpoint]:
        """All, in order of job and sequence."""
        return [self[key] for key in sorted(self)]
