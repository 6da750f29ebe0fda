"""Jobs that have a GPU of a volunteer, and what of them never changes, as columns: no decision asks every job for it again."""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter

import numpy as np

from controller.core.model.entities import LEAST_SENT, JobState
from controller.numerics.arrays import Floats, Mask, Numbers
from controller.numerics.jit import compiled

_step, _sent_bytes = attrgetter("step"), attrgetter("sent_bytes")


@compiled
def checkpoint_bytes(payload_bytes: Floats, sent_bytes: Floats) -> Floats:
    """`JobState.checkpoint_bytes` of each; `sent_bytes` is NaN where it is not known."""
    counted = payload_bytes.copy()
    for job in range(len(counted)):
        if not np.isnan(sent_bytes[job]):
            counted[job] = max(sent_bytes[job], payload_bytes[job] * LEAST_SENT)
    return counted


class Occupants:
    """Jobs on volunteers, or with a GPU reserved there, in the order of volunteers' numbers and then of names.

    A job that has GPUs of two stands there twice. Columns are of one length; what changes from message to message is read
    when it is asked for.
    """

    def __init__(self) -> None:
        self._keys: list[tuple[int, str]] = []
        self.jobs: list[JobState] = []
        self.place: Numbers = np.empty(0, dtype=np.intp)  # of the volunteer
        self._fixed: Floats = np.empty((4, 0))

    @property
    def payload_bytes(self) -> Floats:
        """Bytes of each whole checkpoint."""
        column: Floats = self._fixed[0]
        return column

    @property
    def loss_budget_s(self) -> Floats:
        """The loss budget of each job; infinite where it has none."""
        column: Floats = self._fixed[1]
        return column

    @property
    def checkpoint_bytes(self) -> Floats:
        """`JobState.checkpoint_bytes` of each."""
        return checkpoint_bytes(self.payload_bytes, np.array(list(map(_sent_bytes, self.jobs)), dtype=float))

    @property
    def remaining_s(self) -> Floats:
        """`JobState.remaining_s` of each."""
        column: Floats = (self._fixed[2] - np.array(list(map(_step, self.jobs)), dtype=float)) * self._fixed[
            3
        ]
        return column

    def beside(self, job: JobState, hosts: tuple[str, ...]) -> Mask:
        """Which are other jobs than this one and not about to leave the volunteer; `hosts` are all of them, by number."""
        stay = [
            other is not job and (other.move is None or other.host != hosts[place])
            for other, (place, _) in zip(self.jobs, self._keys, strict=True)
        ]
        return np.array(stay, dtype=bool)

    def add(self, place: int, job: JobState) -> None:
        """The job has a GPU there."""
        key = (place, job.name)
        at = bisect_left(self._keys, key)
        if self._keys[at : at + 1] == [key]:
            return
        spec = job.spec
        fixed = np.array(
            [[spec.payload_bytes], [spec.loss_budget_s], [spec.steps], [spec.step_s]], dtype=float
        )
        self._keys.insert(at, key)
        self.jobs.insert(at, job)
        self.place = np.concatenate((self.place[:at], np.array([place], dtype=np.intp), self.place[at:]))
        self._fixed = np.concatenate((self._fixed[:, :at], fixed, self._fixed[:, at:]), axis=1)

    def remove(self, place: int, job: JobState) -> None:
        """Take its checkpoint away from there."""
        key = (place, job.name)
        at = bisect_left(self._keys, key)
        if self._keys[at : at + 1] != [key]:
            return
        del self._keys[at], self.jobs[at]
        self.place = np.concatenate((self.place[:at], self.place[at + 1 :]))
        self._fixed = np.concatenate((self._fixed[:, :at], self._fixed[:, at + 1 :]), axis=1)
