"""A wave: K' owners of one building give notice at the same second, and every migration must cross the building's uplink.

Paper A, section VII and E3, Figs. 4 and 5: "up to seven events" at once beside a co-running reference workload. Eight hosts in
one building, each with a job, behind an uplink of 1 Gbit/s of which P3 keeps 30 % for research; eight more elsewhere, which
are lent only when all jobs run, so that every destination lies across the uplink. Payloads are drawn around F2's median. The
research flow crosses the same uplink: either greedy, or a reference workload that asks for exactly the reserve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from experiments.claims.framework.claim import Config
from experiments.claims.framework.runs import Case, gather
from experiments.claims.paper_a.campus_runs import FULL_SEEDS
from experiments.inputs.scenario import InverseLaw, Jobs, OwnerEvent, Protocol, Queue, ResearchFlow, Scenario
from experiments.inputs.traces import JobArrival, JobDraw, Trace
from experiments.inputs.traces.streams import stream
from experiments.results.history import notices
from experiments.runtime.tasks import Result, Task
from experiments.worlds.virtual import VirtualWorld, simulate
from topologies import presets
from topologies.spec import ResearchReserve
from topologies.units import GBIT_PER_S, PAYLOAD_SHARE

HOSTS = 8  # in the building; the last of them keeps its job and sends the research flow
MOST = HOSTS - 1  # K'
SEVERAL = (1, 3, 5, 7)
ELSEWHERE_LENT_S, EARLIEST_S, WITHIN_S, AFTER_S = 1800.0, 2400.0, 600.0, 1500.0
RESTART_S = 10.0
RESERVE = 0.3  # beta of P3
UPLINK_BYTES_PER_S = GBIT_PER_S
QUICK_SEEDS = 6  # a wave of one seed holds as many migrations as days of the campus
WINDOW_S = 30.0  # after the notice, for research: migrations of every system are under way
SHORT_S, LONG_S = 120.0, 900.0  # notices: three median payloads fit at the share of migrations; all do


@dataclass(frozen=True, slots=True)
class Wave:
    """`together`: K'. `greedy`: the research flow takes what it gets; else it asks for RESERVE of the uplink.

    `reserve`: what P3 keeps for research.
    """

    system: str
    together: int
    notice_s: float
    greedy: bool
    seed: int
    reserve: float = RESERVE

    @property
    def at_s(self) -> float:
        """The moment of the notices: anywhere between two checkpoints of a fixed period of ten minutes."""
        return EARLIEST_S + WITHIN_S * stream(self.seed, "waves", "when").random()

    @property
    def task(self) -> Task:
        """Its task; the key names everything that the result depends on, but for the code."""
        flow = "greedy" if self.greedy else "reference"
        how = f"{flow}, reserve {self.reserve:.6g}"
        key = f"wave: {self.system}, {self.together} at once, {self.notice_s:g} s, {how}, seed {self.seed}"
        return Task(key, play, (self,))


def scenario_of(wave: Wave) -> Scenario:
    """Return the campus and its parameters; jobs and owners are in the trace."""
    campus = presets.three_tier(
        2 * HOSTS,
        2,
        uplink_bytes_per_s=(UPLINK_BYTES_PER_S, 10.0 * GBIT_PER_S),
        mix=(presets.GpuShare(presets.A6000, 1, 1),),
        reserve=ResearchReserve(beta=wave.reserve),
        name="wave",
    )
    rate = inf if wave.greedy else RESERVE * UPLINK_BYTES_PER_S * PAYLOAD_SHARE
    return Scenario(
        name="wave",
        campus=campus,
        seed=wave.seed,
        duration_s=wave.at_s + AFTER_S,
        queue=Queue(learner="fixed", level_start=float(2 * HOSTS), level_max=float(2 * HOSTS)),
        protocol=Protocol(restart_s=RESTART_S),
        jobs=Jobs(payload=_payload(), memory=InverseLaw("deterministic", 10e9)),
        research=(ResearchFlow(f"h{HOSTS}", campus.coordinator.name, rate),),
    )


def trace_of(wave: Wave) -> Trace:
    """Return a job for each host of the building, then room elsewhere, then K' notices at one moment."""
    draws = stream(wave.seed, "waves")
    jobs = tuple(
        JobArrival(
            1.0 + number,
            JobDraw(f"j{number + 1}", round(_payload().quantile(draws.random())), 100_000, 1.0, 1.0, 10e9, 0.0, 300.0),
        )
        for number in range(HOSTS)
    )
    elsewhere = tuple(f"h{HOSTS + number}" for number in range(1, HOSTS + 1))
    lent = [OwnerEvent(ELSEWHERE_LENT_S, host, "return") for host in elsewhere]
    taken = [OwnerEvent(wave.at_s, f"h{number + 1}", "reclaim", wave.notice_s) for number in range(wave.together)]
    return Trace(f"a wave of {wave.together}", jobs, (*lent, *taken), elsewhere)


def _payload() -> InverseLaw:
    """Return a payload around F2's median; its whole range would make one transfer of 48 GB the figure."""
    return InverseLaw("lognormal", 3.2e9, 0.3, 1.6e9, 6.4e9)


def play(wave: Wave) -> dict[str, Any]:
    """Play a wave; return its figures.

    `completions_s`: from the notice until a job runs again elsewhere, of those moved; `admitted`, `in_time`, `late`;
    `research_share` of the uplink, and `degradation`: the reference workload's shortfall of its demand (null: greedy).
    """
    scenario, watch = scenario_of(wave), _Watch(wave)
    run = simulate(scenario, trace_of(wave), wave.seed, system=wave.system, after_each=watch)
    found = notices(run.facts)
    admitted = [notice for notice in found if notice.admitted_s is not None]
    moved = [notice for notice in found if notice.finished_s is not None]
    share = watch.rate_bytes_per_s() / UPLINK_BYTES_PER_S
    return {
        "completions_s": [round((n.finished_s or 0.0) - n.at_s, 3) for n in moved],
        "noticed": len(found),
        "admitted": len(admitted),
        "in_time": sum(n.in_time is True for n in moved),
        "late": sum(n.in_time is not True for n in admitted),
        "research_share": round(share, 5),
        "degradation": None if wave.greedy else round(max(0.0, 1.0 - share / RESERVE), 5),
        "broken": sorted({broken.rule for broken in run.summary().invariants_broken}),
    }


class _Watch:
    """Recorder of the research flow's bytes at two moments."""

    def __init__(self, wave: Wave) -> None:
        self.seen: list[tuple[float, float]] = []
        self._wanted_s = [wave.at_s + 1.0, wave.at_s + 1.0 + WINDOW_S]

    def __call__(self, world: VirtualWorld) -> None:
        while self._wanted_s:
            world.at(self._wanted_s.pop(0), partial(self._look, world))

    def _look(self, world: VirtualWorld) -> None:
        network = world.env.network.fluid
        moved = network.flow("research 0").moved(world.now_s) if "research 0" in network else 0.0
        self.seen.append((world.now_s, moved))

    def rate_bytes_per_s(self) -> float:
        """Return the research flow's rate on the wire."""
        (from_s, before), (until_s, after) = self.seen
        return (after - before) / (until_s - from_s) / PAYLOAD_SHARE


def waves_of(cases: Mapping[Case, Sequence[Wave]], config: Config) -> dict[Case, list[Result]]:
    """Return the results of each case in the order of its waves, kept beside the other runs of paper A's claims."""
    tasks = {case: [wave.task for wave in waves] for case, waves in cases.items()}
    return gather(tasks, config)


def seeds_of(config: Config) -> tuple[int, ...]:
    """Return the seeds of a claim on waves."""
    return config.seeds_of(QUICK_SEEDS, FULL_SEEDS)


def sizes_of(config: Config) -> tuple[int, ...]:
    """Return the K' of a claim on waves."""
    return SEVERAL if config.quick else tuple(range(1, MOST + 1))
