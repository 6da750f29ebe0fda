"""One oracle's run: the plan of each window, played by the virtual world."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import Trace
from experiments.results.accounting import Summary
from experiments.worlds.oracle.replanner import Horizon, Player
from experiments.worlds.oracle.windows import Window, WindowEnd
from experiments.worlds.virtual import Overheads, VirtualRun, simulate
from topologies.errors import SpecError

DAY_S = 86_400.0
TIME_LIMIT_S = 60.0  # a window of paper A's campus needs a few hundredths
OVERLAP_S = 3600.0  # longer than any checkpoint before the end of a stay takes
CARRIER = "reclaimnet"  # the row whose other columns it plays with


@dataclass(frozen=True)
class OracleRun:
    """What was played, how each window was planned (in order; amendments among them), what owners ended."""

    run: VirtualRun
    windows: tuple[Window, ...]
    ends: tuple[WindowEnd, ...]

    def summary(self) -> Summary:
        """The figures of what was played, accounted like those of every other system."""
        return self.run.summary()

    @property
    def worst_gap(self) -> float:
        """The largest gap of any window; 0 if all are proved optimal."""
        return max((window.gap for window in self.windows), default=0.0)

    @property
    def solve_s(self) -> float:
        """CPU seconds of the solver, in all."""
        return sum(window.solve_s for window in self.windows)


def run_oracle(
    scenario: Scenario,
    trace: Trace,
    seed: int | None = None,
    *,
    window_s: float = DAY_S,
    time_limit_s: float = TIME_LIMIT_S,
    overlap_s: float = OVERLAP_S,
    at_first: bool = False,
    costs: Overheads | None = None,
    until_over: bool = False,
) -> OracleRun:
    """Plan and play a scenario and a trace (both in real units) with all of the trace known.

    `window_s` and `overlap_s` are in real units too; `time_limit_s` is the solver's, a window. The oracle's is what the
    paper's program names: checkpoints, their destinations and rates, migrations. The host that a new job begins on is that
    of P2 on line, unless `at_first`: who knows when hosts will go, and may choose, is hardly ever hit at all. Grants are
    enforced by pacing, whatever the scenario says: a plan of rates is worth nothing without. `costs`, `until_over`: as of
    `simulate`. SpecError: a duration that is none.
    """
    for name, value in (("window", window_s), ("time limit", time_limit_s)):
        if not 0.0 < value < float("inf"):
            raise SpecError(name, value, "a duration above 0")
    scale = scenario.scale
    horizon = Horizon(window_s * scale.time, overlap_s * scale.time, time_limit_s)
    player = Player(scale.apply(trace), horizon, at_first=at_first)
    scenario = replace(scenario, protocol=replace(scenario.protocol, enforcement="pace"))
    run = simulate(
        scenario, trace, seed, system=CARRIER, costs=costs, until_over=until_over, after_each=player.watch
    )
    return OracleRun(run, tuple(player.windows), tuple(player.ends))
