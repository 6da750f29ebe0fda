"""A run of the oracle: the plan of each window, played by the virtual world with every promise judged.

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
from experiments.worlds.oracle.problem import Window
from experiments.worlds.oracle.replanner import Replanner
from experiments.worlds.virtual import VirtualRun, simulate
from topologies.errors import SpecError

TIME_LIMIT_S = 60.0  # a window of paper A's campus needs a few hundredths
CARRIER = "reclaimnet"  # the row whose other columns it plays with
PLANNED = "planned"
# Rows of the papers' tables that promise all that `experiments.results.rules` judges: each is a valid schedule.
VALID = tuple(name for name in SYSTEMS if not not_promised(POLICIES[name]))


@dataclass(frozen=True)
class OracleRun:
    """A run that was played, and its windows in order, amendments among them.

    `schedule`: PLANNED, or the row that did better than the plan.
    """

    run: VirtualRun
    windows: tuple[Window, ...]
    schedule: str

    def summary(self) -> Summary:
        """Return figures that are accounted like those of every other system."""
        return self.run.summary()

    @property
    def lost_s(self) -> float:
        """Work that the schedule lost, seconds of a GPU."""
        return sum(lost.work_s for lost in work_lost(self.run.facts))


def run_oracle(
    scenario: Scenario,
    trace: Trace,
    seed: int | None = None,
    *,
    time_limit_s: float = TIME_LIMIT_S,
    until_over: bool = False,
    against: Sequence[str] = VALID,
) -> OracleRun:
    """Plan and play a scenario and a trace (both in real units) with all of the trace known.

    The oracle decides what the paper's program names: checkpoints, their destinations and rates, and migrations. A new
    job begins on the host that P2 chooses on line. Grants are enforced by pacing, whatever the scenario has: a plan of
    rates is worth nothing without. `time_limit_s` is the solver's, a window; `until_over`: as of `simulate`. `against`:
    rows, the best of which is taken where the plan breaks a promise or loses more. SpecError: no such row, or GPUs of several
    speeds.
    """
    if calendars := [host.lent for host in scenario.volunteers if host.lent is not None]:
        raise SpecError("campus.hosts.lent", calendars[0], "no calendar: the plan knows all that owners do")
    if scenario.campus != scenario.campus.of_equal_speeds:
        raise SpecError(
            "campus.gpu_models", "speeds", "GPUs of one speed (equal_speeds = true): the plan counts with no other"
        )
    replanner = Replanner(scenario, trace, time_limit_s)
    scenario = replace(scenario, protocol=replace(scenario.protocol, enforcement="pace"))
    planned = simulate(scenario, trace, seed, system=CARRIER, until_over=until_over, after_each=replanner.watch)
    schedules = [(PLANNED, planned)]
    schedules += [(row, simulate(scenario, trace, seed, system=row, until_over=until_over)) for row in against]

    def badness(schedule: tuple[str, VirtualRun]) -> tuple[bool, float]:
        summary = schedule[1].summary()
        return bool(summary.invariants_broken or summary.not_promised), summary.interruptions.lost_gpu_s

    name, run = min(schedules, key=badness)
    return OracleRun(run, tuple(replanner.windows), name)
