"""One oracle's run: the plan of each window, played by the virtual world, and how little could have been lost.

Two figures frame what can be reached. The *schedule* was played, with every promise judged: something at most as bad exists.
The *bound* (see `bound`) says how little any choice of checkpoints could have lost with the jobs where the schedule had them.
The `gap` is between the two. (The gap of a `Window` is the solver's, between its plan and the best of its list of choices.)

A planner that knows everything may also do what a system does that knows nothing. So the schedule is the best of the plan and of
the rows in `against`, which are those that make every promise (`VALID`): first by promises kept, then by work lost. None of these
rows loses less. A row that keeps no reserve, holds no sender to its share or computes twice may: it is no valid schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from controller.core.policies.table import POLICIES, SYSTEMS
from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import Trace
from experiments.results.losses import work_lost
from experiments.results.rules import not_promised
from experiments.results.summary import Summary
from experiments.worlds.oracle.bound import LeastLoss, least_losses
from experiments.worlds.oracle.replanner import Horizon, Replanner
from experiments.worlds.oracle.windows import Window, WindowEnd
from experiments.worlds.virtual import Overheads, VirtualRun, simulate
from topologies.errors import SpecError

DAY_S = 86_400.0
TIME_LIMIT_S = 60.0  # a window of paper A's campus needs a few hundredths
OVERLAP_S = 3600.0  # longer than any checkpoint before the end of a stay takes
CARRIER = "reclaimnet"  # the row whose other columns it plays with
PLANNED = "planned"
# Rows of the papers' tables that promise all that `experiments.results.rules` judges: each is a valid schedule.
VALID = tuple(name for name in SYSTEMS if not not_promised(POLICIES[name]))


@dataclass(frozen=True)
class OracleRun:
    """What was played, how each window was planned (in order; amendments among them), what owners ended.

    `schedule`: PLANNED, or the row that did better than the plan; then `ends` is empty. `least`: the bound of each attempt.
    """

    run: VirtualRun
    windows: tuple[Window, ...]
    ends: tuple[WindowEnd, ...]
    schedule: str
    least: tuple[LeastLoss, ...]

    def summary(self) -> Summary:
        """The figures of what was played, accounted like those of every other system."""
        return self.run.summary()

    @property
    def lost_s(self) -> float:
        """What the schedule lost, seconds of a GPU."""
        return sum(lost.work_s for lost in work_lost(self.run.facts))

    @property
    def bound_s(self) -> float:
        """The least that any choice of checkpoints loses with the jobs where the schedule had them, seconds of a GPU."""
        return sum(least.work_s for least in self.least)

    @property
    def gap(self) -> float:
        """The part of what the schedule lost that the bound does not show to be unavoidable; 0 where nothing was lost."""
        return 1.0 - self.bound_s / self.lost_s if self.lost_s > 0.0 else 0.0


def run_oracle(
    scenario: Scenario,
    trace: Trace,
    seed: int | None = None,
    *,
    window_s: float = DAY_S,
    time_limit_s: float = TIME_LIMIT_S,
    overlap_s: float = OVERLAP_S,
    costs: Overheads | None = None,
    until_over: bool = False,
    against: Sequence[str] = VALID,
) -> OracleRun:
    """Plan and play a scenario and a trace (both in real units) with all of the trace known.

    `window_s` and `overlap_s` are in real units too; `time_limit_s` is the solver's, a window. The oracle decides what the
    paper's program names: checkpoints, their destinations and rates, and migrations. A new job begins on the host that P2
    chooses on line. Grants are enforced by pacing, whatever the scenario says: a plan of rates is worth nothing without.
    `costs`, `until_over`: as of `simulate`. `against`: rows, the best of which is taken where the plan breaks a promise or loses
    more. SpecError: a duration that is none, or no such row.
    """
    for name, value in (("window", window_s), ("time limit", time_limit_s)):
        if not 0.0 < value < float("inf"):
            raise SpecError(name, value, "a duration above 0")
    scale = scenario.scale
    horizon = Horizon(window_s * scale.time, overlap_s * scale.time, time_limit_s)
    replanner = Replanner(scale.apply(trace), scenario.played().research, horizon)
    scenario = replace(scenario, protocol=replace(scenario.protocol, enforcement="pace"))
    planned = simulate(
        scenario, trace, seed, system=CARRIER, costs=costs, until_over=until_over, after_each=replanner.watch
    )
    schedules = [(PLANNED, CARRIER, planned)]
    for row in against:
        online = simulate(scenario, trace, seed, system=row, costs=costs, until_over=until_over)
        schedules.append((row, row, online))

    def badness(schedule: tuple[str, str, VirtualRun]) -> tuple[bool, float]:
        summary = schedule[2].summary()
        return bool(summary.invariants_broken or summary.not_promised), summary.interruptions.lost_gpu_s

    name, row, run = min(schedules, key=badness)
    least = least_losses(run, scenario, trace, row, costs)
    ends = tuple(replanner.ends) if name == PLANNED else ()
    return OracleRun(run, tuple(replanner.windows), ends, name, tuple(least))
