"""Write a workload, run it live, and close its host without notice.

It prints what the job wrote in both attempts, and what was lost:
`sudo .venv/bin/python -m experiments.examples.my_workload`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from testbed.workloads.base import StateMismatch, Workload, number

SCENARIO = """
name = "my workload"
duration = "13 s"
campus = "example:twohouses"
protocol = { restart = "0.5 s", control_period = "1 s", lease = "3 s" }

[[jobs]]
name = "fibonacci"
workload = "experiments.examples.my_workload:Fibonacci"
steps = 30
step = "200 ms"
payload = "1 MB"
loss_budget = "1 s"
"""


class Fibonacci(Workload):
    """Two numbers that grow; Cassini's identity proves them, whatever was lost between."""

    step_s = 0.2  # it only emulates computing; leave it out where steps take their time

    def __init__(self, params: Mapping[str, object]) -> None:
        super().__init__(params)
        self.steps = int(number(params, "steps", 30, 1, 1e6, whole=True))
        self.last, self.this = 0, 1

    @property
    def steps_total(self) -> int:
        return self.steps

    def begin(self) -> None:
        print("begins", flush=True)

    def step(self) -> None:
        self.step_number += 1
        self.last, self.this = self.this, self.last + self.this

    def save(self, path: Path) -> None:
        path.write_text(json.dumps([self.step_number, self.last, self.this]))

    def load(self, path: Path) -> None:
        self.step_number, self.last, self.this = json.loads(path.read_text())
        print("resumes after step", self.step_number, flush=True)

    def verify(self) -> bytes:
        if abs(self.this * (self.this - self.last) - self.last**2) != 1:
            raise StateMismatch(f"{self.last} and {self.this} are no neighbours")
        return hashlib.sha256(str(self.this).encode()).digest()


def main() -> None:
    """Run the job on the only host that is lent, and close that one after another was lent."""
    # here, since the process of each attempt imports this file, too
    from experiments import OwnerEvent, generate, run_live
    from experiments.inputs.scenario import loads

    scenario = loads(SCENARIO)
    first, second, *others = [host.name for host in scenario.volunteers]
    events = (OwnerEvent(1.0, second, "return"), OwnerEvent(4.0, first))  # without notice: an emergency
    trace = replace(generate(scenario), owner_events=events, away=(second, *others))
    out = Path("out/my_workload")
    result = run_live(scenario, trace=trace, out=out)
    for log in sorted(out.glob("logs/jobs/fibonacci.*.log")):
        print(f"{log.name}: {log.read_text().strip()}")
    summary = result.summary
    print(f"work lost: {summary.interruptions.lost_gpu_s:.1f} s; finished: {summary.jobs.finished}")


if __name__ == "__main__":
    main()
