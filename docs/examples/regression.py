"""A workload that really computes: linear regression by stochastic gradient descent, in numpy."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed.workloads.base import StateMismatch, Workload, number, only, write_parts

HEAD = struct.Struct("<Q32s")  # steps done, digest


class Regression(Workload):
    """Linear regression whose state proves itself: the weights before and after the last step.

    That step is taken again and must give the same to the last bit. The digest covers all steps so far: a job that
    was moved ends with the digest of one that was not.
    """

    def __init__(self, params: Mapping[str, object]) -> None:
        super().__init__(params)
        only(params, frozenset({"steps", "features", "batch", "seed"}))
        self.steps = int(number(params, "steps", 2000, 1, 1e9, whole=True))
        self.features = int(number(params, "features", 200, 1, 1e6, whole=True))
        self.batch = int(number(params, "batch", 32, 1, 1e5, whole=True))
        self.seed = int(number(params, "seed", 0, 0, 2**31, whole=True))

    @property
    def steps_total(self) -> int:
        return self.steps

    def begin(self) -> None:
        self.before, self.weights = np.zeros(self.features), np.zeros(self.features)
        self.digest = bytes(32)

    def step(self) -> None:
        self.before = self.weights
        self.weights = self.after(self.before, self.step_number)
        self.digest = hashlib.sha256(self.digest + self.weights.tobytes()).digest()
        self.step_number += 1
        if self.step_number % 100 == 0:
            print(f"step {self.step_number}: error {np.abs(self.weights - self.truth()).mean():.4f}", flush=True)

    def truth(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the weights that the data come from."""
        return np.random.default_rng(self.seed).standard_normal(self.features)

    def after(self, weights: np.ndarray[Any, Any], step: int) -> np.ndarray[Any, Any]:
        """Return the weights after a step of descent; its batch is a function of the step."""
        rng = np.random.default_rng([self.seed, step])
        inputs = rng.standard_normal((self.batch, self.features))
        outputs = inputs @ self.truth() + 0.1 * rng.standard_normal(self.batch)
        slope = inputs.T @ (inputs @ weights - outputs) / self.batch
        return weights - 0.05 * slope

    def parts(self) -> Sequence[Any]:
        return [HEAD.pack(self.step_number, self.digest), self.before, self.weights]

    def save(self, path: Path) -> None:
        write_parts(path, self.parts())

    def load(self, path: Path) -> None:
        state = path.read_bytes()
        if len(state) != HEAD.size + 2 * 8 * self.features:
            raise StateMismatch(f"{path}: {len(state)} bytes are no state of {self.features} features")
        self.step_number, self.digest = HEAD.unpack_from(state)
        numbers = np.frombuffer(state, offset=HEAD.size)
        self.before, self.weights = numbers[: self.features].copy(), numbers[self.features :].copy()

    def verify(self) -> bytes:
        if self.step_number and not np.array_equal(self.after(self.before, self.step_number - 1), self.weights):
            raise StateMismatch(f"the weights are not those of step {self.step_number}")
        return self.digest
