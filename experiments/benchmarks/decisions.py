"""How long the coordinator thinks: one tick, P1 for all jobs, P2 for one reclaim, P3 for the set, at four sizes of campus.

A *tick* is what the live coordinator pays when an owner announces that he takes his host back: `handle` of that message,
which chooses a destination (P2), admits the move (P3), shares all links anew, plans all checkpoints anew (P1) and
shares again, and `next_deadline_s`, which its loop asks after each event. A *periodic tick* is the same without a reclaim:
P1 and P3 when the control period is over. Beside them stand the decisions alone, as the policy's functions on
inputs that are ready; P2 as a reclaim finds it, with nothing remembered of other moments. Not in it: sockets, decoding,
the journal. Time is the process's CPU time: on a busy machine the clock on the wall measures its other users.

The core is pure, so nothing else of the system has to run. Garbage collection is on, as it is live; what the campus
is made of is frozen first, as a server does once it is up.
"""

from __future__ import annotations

import gc
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from controller.core.admission.admission import MigrationRequest
from controller.core.coordinator import Coordinator
from controller.core.lifecycle.candidates import (
    candidates,
    request,
    reserved_rate,
    residual,
)
from controller.core.lifecycle.checkpoint_plans import plan_all
from controller.core.lifecycle.conclusion import TOGETHER_S
from controller.core.lifecycle.grants import committed
from controller.core.model import events as ev
from controller.core.model.entities import JobState
from controller.warm_up import rehearse
from experiments.benchmarks.decisions_world import campus_of, coordinator_at_work
from experiments.benchmarks.goals import JudgedFigure, in_ms
from experiments.benchmarks.results import write_result
from experiments.results.pictures import BAD, GOOD, OURS, PEER, canvas
from testbed.messages import OwnerReclaims, OwnerReturns

SIZES = (54, 500, 5_000, 50_000)
QUICK_SIZES = (54, 500, 5_000)
SAMPLES = {54: 400, 500: 300, 5_000: 100, 50_000: 20}  # enough for a 99th percentile where it is asked for
NOTICE_S = 600.0
TARGETS_S = {54: 0.5e-3, 500: 2e-3, 5_000: 20e-3}  # of the whole tick's median
PLACEMENT_TARGET_S = 0.3e-3  # of P2 alone at 500 hosts
MOST_P99_OVER_MEDIAN = 3.0
PAPER_S = {54: 3e-3, 500: 18e-3}  # paper A, appendix B and Fig. 8: "coordinator scheduling latency"
SIMULTANEOUS = 10


@dataclass(frozen=True, slots=True)
class Spread:
    """Times of one thing done again and again."""

    median_s: float
    p99_s: float
    samples: int

    @classmethod
    def of(cls, times_s: Sequence[float]) -> Spread:
        """Percentiles of at least one sample; the 99th percentile is the least sample that 99 % do not exceed."""
        ordered = sorted(times_s)
        rank = math.ceil(0.99 * len(ordered)) - 1
        return cls(statistics.median(ordered), ordered[rank], len(ordered))


def measure_decisions(out: Path, *, quick: bool = False) -> dict[str, Any]:
    """Measure all sizes; write decisions.json and decisions.svg to `out`, return what the JSON holds.

    About a minute, most of it to build the campus of 50 000 hosts; `quick` leaves it out. Needs no root.
    """
    rehearse()
    sizes = {hosts: measure_size(hosts) for hosts in (QUICK_SIZES if quick else SIZES)}
    verdict: dict[str, bool] = {}
    for hosts, figures in sizes.items():
        tick = figures["tick"]
        if hosts in TARGETS_S:
            verdict[f"tick at {hosts}"] = tick["median_s"] <= TARGETS_S[hosts]
        verdict[f"p99 at {hosts}"] = tick["p99_s"] <= MOST_P99_OVER_MEDIAN * tick["median_s"]
    if 500 in sizes:
        alone, ten = sizes[500]["p2"]["median_s"], sizes[500]["p2_ten"]["median_s"]
        verdict["P2 at 500"] = alone <= PLACEMENT_TARGET_S
        verdict["P2 for ten is not ten times one"] = ten < SIMULTANEOUS * alone
        ticks = (sizes[500][name]["median_s"] for name in ("ten_reclaims", "tick"))
        verdict["ten reclaims are not ten times one"] = next(ticks) < SIMULTANEOUS * next(ticks)
    result = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "sizes": sizes,
        "growth_exponent": growth_exponent({n: s["tick"]["median_s"] for n, s in sizes.items()}),
        "paper": {"tick_s": PAPER_S, "growth_exponent": growth_exponent(PAPER_S)},
        "targets": {
            "tick_s": TARGETS_S,
            "placement_s_at_500": PLACEMENT_TARGET_S,
            "p99_over_median": MOST_P99_OVER_MEDIAN,
        },
        "verdict": verdict,
    }
    write_result(out / "decisions.json", result)
    draw(result, out / "decisions.svg")
    return result


def judged_figures(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    """The figures of `result`, as it stands in the JSON, that have a goal."""
    for hosts, goal_s in result["targets"]["tick_s"].items():
        if size := result["sizes"].get(str(hosts)):
            found_s = size["tick"]["median_s"]
            yield JudgedFigure(
                f"a tick at {hosts} hosts, median", f"<= {in_ms(goal_s)}", in_ms(found_s), found_s <= goal_s
            )


def measure_size(hosts: int, samples: int | None = None) -> dict[str, Any]:
    """All figures of one size: medians and 99th percentiles in seconds."""
    core = coordinator_at_work(campus_of(hosts))
    at_work = AtWork(core, samples or SAMPLES.get(hosts, 50))
    gc.collect()
    gc.freeze()
    try:
        times = at_work.all_times()
    finally:
        gc.unfreeze()
    return {
        "hosts": hosts,
        "jobs": len(core.cluster.jobs),
        "links": len(core.cluster.share),
        **{name: asdict(Spread.of(taken)) for name, taken in times.items()},
    }


class AtWork:
    """A coordinator under the stop-watch. Time in its world goes on by one control period a sample."""

    def __init__(self, core: Coordinator, samples: int) -> None:
        self.core, self.samples = core, samples
        self.now_s = core.cluster.now_s
        self.movable = [job for job in core.cluster.jobs.values() if job.host != job.standby]
        self._next = 0

    def all_times(self) -> dict[str, list[float]]:
        """What is measured, by name: seconds of each sample. The first periodic ticks tell every agent everything."""
        for _ in range(3):
            self._periodic_tick()
        few = max(5, self.samples // 4)
        return {
            "tick": [self._reclaim(1) for _ in range(self.samples)],
            "periodic_tick": [self._periodic_tick() for _ in range(self.samples)],
            "ten_reclaims": [self._reclaim(SIMULTANEOUS) for _ in range(few)],
            "p1": [self._time(self._checkpoints) for _ in range(few)],
            "p2": [self._time(lambda: self._destinations(1)) for _ in range(self.samples)],
            "p2_ten": [self._time(lambda: self._destinations(SIMULTANEOUS)) for _ in range(few)],
            "p3": [self._time(self._admission) for _ in range(few)],
        }

    def _time(self, work: Callable[[], object]) -> float:
        began_s = time.process_time()
        work()
        return time.process_time() - began_s

    def _periodic_tick(self) -> float:
        self.now_s += self.core.cluster.settings.control_period_s
        return self._time(lambda: self._event(ev.Woke()))

    def _reclaim(self, hosts: int) -> float:
        """That many owners announce reclaims at one moment; afterwards, unmeasured, they change their mind."""
        self._periodic_tick()
        self.now_s += 1.0
        jobs = self._jobs(hosts)
        names = [job.host for job in jobs if job.host is not None]
        notices = [ev.AgentSaid(name, OwnerReclaims(NOTICE_S, False, [])) for name in names]
        taken_s = self._time(lambda: self._together(notices))
        for name in names:
            self._event(ev.AgentSaid(name, OwnerReturns()))
        return taken_s

    def _together(self, events: Sequence[ev.Event]) -> None:
        """All of one moment, and what is put off for a moment because there are several."""
        for event in events:
            self._event(event)
        if len(events) > 1:
            self.now_s += TOGETHER_S
            self._event(ev.Woke())

    def _event(self, event: ev.Event) -> None:
        self.core.handle(event, self.now_s)
        self.core.next_deadline_s()

    def _jobs(self, count: int) -> list[JobState]:
        """The next ones, in turn."""
        first, self._next = self._next, self._next + count
        return [self.movable[(first + i) % len(self.movable)] for i in range(min(count, len(self.movable)))]

    # ------------------------------------------------------------ decisions alone

    def _checkpoints(self) -> None:
        """P1 for all but one job, another one each time, from the prices of the last plan: as after a reclaim."""
        gone = self._jobs(1)[0]
        jobs = [job for job in self.core.cluster.jobs.values() if job.standby is not None and job is not gone]
        plan_all(self.core.cluster, jobs, self.now_s)

    def _destinations(self, count: int) -> None:
        world = self.core.cluster
        world.known.forget()
        for job in self._jobs(count):
            assert job.host is not None
            wanted = request(world, job, job.host, job.spec.payload_bytes, NOTICE_S)
            free = residual(world, self.now_s, reserved_rate)
            found = candidates(world, wanted, [job.host], free, self.now_s, among=world.fit_hosts(job))
            world.policy.select(wanted, found, draw=0.5)

    def _admission(self) -> None:
        world, jobs = self.core.cluster, self._jobs(SIMULTANEOUS)
        asked = [
            MigrationRequest(
                job.name,
                job.spec.payload_bytes,
                self.now_s + NOTICE_S,
                world.settings.restart_s,
                world.routes.route(job.host or "", job.standby),
            )
            for job in jobs
            if job.standby is not None
        ]
        world.policy.admit(asked, self.now_s, world.spendable, committed(world))


def growth_exponent(seconds: dict[int, float]) -> float:
    """The slope of log time over log size, by least squares: 1 is linear."""
    x = [math.log(size) for size in seconds]
    y = [math.log(taken) for taken in seconds.values()]
    return statistics.linear_regression(x, y).slope


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Time over size, both logarithmic: ours with its 99th percentile, the goals, and what paper A printed."""
    sizes = list(result["sizes"])
    with canvas(path, 1, 1, (7.5, 4.8)) as (_, [[axes]]):
        lines = (("tick", OURS, "o", "one tick: P1, P2, P3"), ("p2", GOOD, "s", "P2 alone"))
        for name, colour, marker, label in lines:
            medians, tails = (
                [result["sizes"][n][name][key] * 1e3 for n in sizes] for key in ("median_s", "p99_s")
            )
            axes.plot(sizes, medians, color=colour, marker=marker, label=f"{label}, median")
            axes.fill_between(
                sizes, medians, tails, color=colour, alpha=0.2, linewidth=0, label="to the 99th percentile"
            )
        paper, goals = result["paper"]["tick_s"], result["targets"]["tick_s"]
        axes.plot(list(paper), [s * 1e3 for s in paper.values()], "D--", color=PEER, label="paper A, Fig. 8")
        axes.plot(list(goals), [s * 1e3 for s in goals.values()], "_", color=BAD, markersize=22, label="goal")
        axes.set(xscale="log", yscale="log", xlabel="hosts (a job on each second one)", ylabel="ms")
        axes.set_title(f"The coordinator's tick grows like size^{result['growth_exponent']:.2f}")
        axes.grid()
        axes.legend()
