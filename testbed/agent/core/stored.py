"""What an agent knows to be on its host's disk: completed checkpoints, of its own jobs and of others'."""

from __future__ import annotations

from collections.abc import Mapping, Set

from testbed.messages import StoredCheckpoint
from testbed.ranks import superseded

Key = tuple[str, int]  # job, sequence


class ByJob(dict[Key, StoredCheckpoint]):
    """Checkpoints by job and sequence, changed one at a time or cleared. Those of one job are found without a look at all others,
    of which a vault holds hundreds."""

    def __init__(self, known: Mapping[Key, StoredCheckpoint] | None = None) -> None:
        super().__init__()
        self._of: dict[str, dict[int, StoredCheckpoint]] = {}
        for key, checkpoint in (known or {}).items():
            self[key] = checkpoint

    def __setitem__(self, key: Key, checkpoint: StoredCheckpoint) -> None:
        super().__setitem__(key, checkpoint)
        self._of.setdefault(key[0], {})[key[1]] = checkpoint

    def __delitem__(self, key: Key) -> None:
        super().__delitem__(key)
        of_job = self._of[key[0]]
        del of_job[key[1]]
        if not of_job:
            del self._of[key[0]]

    def clear(self) -> None:
        """Nothing is there any more."""
        super().clear()
        self._of.clear()

    def of(self, job: str) -> dict[int, StoredCheckpoint]:
        """A job's, by sequence: not to be changed. Other threads may ask."""
        return self._of.get(job, {})

    def put(self, checkpoint: StoredCheckpoint, but: Set[int] = frozenset()) -> None:
        """Note that it is there, and that what is of no use beside it is not, `but` for these sequences."""
        job, arrived = checkpoint.job, checkpoint.sequence
        self[job, arrived] = checkpoint
        steps = {sequence: known.step for sequence, known in self.of(job).items()}
        for sequence in superseded(job, steps, arrived):
            if sequence not in but:
                del self[job, sequence]

    def forget(self, job: str, before: int, but: Set[int] = frozenset()) -> None:
        """Drop those of the job with a sequence below `before`, `but` for these."""
        for sequence in [number for number in self.of(job) if number < before and number not in but]:
            del self[job, sequence]


class StoredCheckpoints(ByJob):
    """What an agent has told, or is to tell, to be there."""

    def numbers(self, job: str) -> set[int]:
        """Sequences of a job's. Other threads may ask."""
        return set(self.of(job))

    def listed(self) -> list[StoredCheckpoint]:
        """All, in order of job and sequence."""
        return [self[key] for key in sorted(self)]
