"""Run one job live on two hosts, and let the first host's owner take it back with a notice of four seconds.

It prints every fact about the job:
`sudo .venv/bin/python -m experiments.examples.one_reclaim`, or without root with `--virtual`.
"""

from __future__ import annotations

import sys

from experiments import JobArrival, JobDraw, OwnerEvent, Protocol, RunResult, Scenario, Trace, run_live, simulate
from topologies import three_tier

SCENARIO = Scenario(
    "one reclaim",
    three_tier(2, buildings=2),
    duration_s=14.0,
    protocol=Protocol(restart_s=0.5, control_period_s=2.0, lease_s=6.0, snapshots="copy"),
)
JOB = JobDraw(
    "mine",
    payload_bytes=20_000_000,
    steps=50,
    step_s=0.2,
    dirty_fraction=0.2,
    memory_bytes=8e9,
    min_capability=0.0,
    loss_budget_s=5.0,
)
TRACE = Trace(
    "by hand",
    (JobArrival(0.5, JOB),),
    (OwnerEvent(2.0, "h2", "return"), OwnerEvent(4.0, "h1", notice_s=4.0)),
    away=("h2",),  # so that the job starts on h1
)


def show(result: RunResult) -> None:
    """Print the facts that name the job, and what the move cost."""
    for at_s, fact in result.events:
        if getattr(fact, "job", "") == JOB.name:
            print(f"{at_s:6.2f} s  {fact}")
    moves = result.summary.migrations
    print(f"moved in time: {moves.in_time} of {moves.admitted}; the job stood still for {moves.downtime_median_s} s")


if __name__ == "__main__":
    is_virtual = "--virtual" in sys.argv  # the same decisions without root
    show(simulate(SCENARIO, trace=TRACE) if is_virtual else run_live(SCENARIO, trace=TRACE, out="out/one_reclaim"))
