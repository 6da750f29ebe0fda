"""A workload that counts, and reports each number."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from testbed.workloads.base import StateMismatch, Workload, number


class Counting(Workload):
    """A count whose state is the sum of the numbers so far; the sum has a closed form, so a wrong one is found."""

    step_s = 0.2  # it only emulates computing; leave it out where steps really take their time

    def __init__(self, params: Mapping[str, object]) -> None:
        super().__init__(params)
        self.steps = int(number(params, "steps", 50, 1, 1e6, whole=True))
        self.total = 0

    @property
    def steps_total(self) -> int:
        return self.steps

    def begin(self) -> None:
        print("begins", flush=True)

    def step(self) -> None:
        self.step_number += 1
        self.total += self.step_number
        print("step", self.step_number, flush=True)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps([self.step_number, self.total]))

    def load(self, path: Path) -> None:
        self.step_number, self.total = json.loads(path.read_text())
        print("goes on after step", self.step_number, flush=True)

    def verify(self) -> bytes:
        if self.total != self.step_number * (self.step_number + 1) // 2:
            raise StateMismatch(f"{self.total} is not the sum of 1 to {self.step_number}")
        return hashlib.sha256(str(self.total).encode()).digest()
