"""Contents of a host's disk: completed checkpoints, of its own jobs and of others'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Set

from testbed.messages import StoredCheckpoint

Key = tuple[str, int]  # job, sequence


class StoredCheckpoints(MutableMapping[Key, StoredCheckpoint]):
    """Checkpoints by job and sequence. Those of a job are found without a look at all others, of which a vault holds hundreds."""

    def __init__(self, known: Mapping[Key, StoredCheckpoint] | None = None) -> None:
        self._of: dict[str, dict[int, StoredCheckpoint]] = {}
        self.update(known or {})

    def __getitem__(self, key: Key) -> StoredCheckpoint:
        return self._of[key[0]][key[1]]

    def __setitem__(self, key: Key, checkpoint: StoredCheckpoint) -> None:
        self._of.setdefault(key[0], {})[key[1]] = checkpoint

    def __delitem__(self, key: Key) -> None:
        of_job = self._of[key[0]]
        del of_job[key[1]]
        if not of_job:
            del self._of[key[0]]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, tuple) and key[1] in self._of.get(key[0], ())

    def __iter__(self) -> Iterator[Key]:
        return ((job, sequence) for job, of_job in self._of.items() for sequence in of_job)

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def of(self, job: str) -> Mapping[int, StoredCheckpoint]:
        """Return the checkpoints of a job, by sequence."""
        return self._of.get(job, {})

    def put(self, checkpoint: StoredCheckpoint, but: Set[int] = frozenset()) -> None:
        """Note that it is there, in place of the job's older ones, `but` for these sequences."""
        self[checkpoint.job, checkpoint.sequence] = checkpoint
        self.forget(checkpoint.job, checkpoint.sequence, but)

    def forget(self, job: str, before: int, but: Set[int] = frozenset()) -> None:
        """Drop those of the job with a sequence below `before`, `but` for these."""
        for sequence in [number for number in self.of(job) if number < before and number not in but]:
            del self[job, sequence]

    def listed(self) -> list[StoredCheckpoint]:
        """Return every stored checkpoint, in order of job and sequence."""
        return [self[key] for key in sorted(self)]
