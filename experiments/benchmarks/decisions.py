"""The coordinator's thinking time: one tick, the end of a period, ten owners at once; and two months in virtual time.

A *tick* is the cost of an owner's notice to the live coordinator: `handle` of that message and `next_deadline_s`, which its loop
calls after each event. `handle` chooses a destination (P2), admits the move (P3), shares all links, plans all checkpoints (P1)
and shares again. A *periodic tick* is the end of a control period without a reclaim: P1 and P3. Sockets, decoding and the
journal are not in it. Time is processor time: on a busy machine the clock on the wall measures its other users.

The core is pure, so nothing else of the system has to run. Garbage collection is on, as it is live; the campus's own objects are
frozen first, as a server does once it is up.

Paper A's 3 ms and 18 ms are its Fig. 8, which does not describe coordinator, machine and load. Its text has Algorithm 1 below
0.1 ms a node, so most of it is likely one Python call a node. Here decisions work on columns, and only changes are recomputed.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.table import Table

from controller.core.coordinator import TOGETHER_S, Coordinator
from controller.core.model import events as ev
from controller.core.model.entities import JobState
from controller.warm_up import rehearse
from experiments.benchmarks.decisions_world import campus_of, coordinator_at_work
from experiments.benchmarks.frame import Goal, Result, Run, at_most, in_ms, quantiles, table_of
from experiments.inputs.traces import generate
from experiments.inputs.traces.paper_campus import paper_scenario
from experiments.worlds.virtual.run import simulate
from testbed.messages import OwnerReclaims, OwnerReturns

SIZES = (54, 500, 5_000, 50_000)
QUICK_SIZES = (54, 500, 5_000)
SAMPLES = {54: 400, 500: 300, 5_000: 100, 50_000: 20}  # enough for a 99th percentile where it is asked for
NOTICE_S = 600.0
TARGETS_S = {54: 0.5e-3, 500: 2e-3, 5_000: 20e-3}  # of the whole tick's median
MAX_P99_OVER_MEDIAN = 3.0
PAPER_S = {54: 3e-3, 500: 18e-3}  # paper A, appendix B and Fig. 8: "coordinator scheduling latency"
SUBLINEAR = 1.0  # paper A, Fig. 8: latency grows more slowly than the campus
SIMULTANEOUS = 10
TWO_MONTHS_S = 40.0
FIGURES = {"periodic_tick": "periodic tick", "ten_reclaims": "10 reclaims"}


def measure(run: Run) -> dict[str, Any]:
    """Time all sizes, about a minute, most of it to build 50 000 hosts, which `quick` leaves out. Needs no root."""
    rehearse()
    sizes = {hosts: measure_size(hosts) for hosts in run.each(QUICK_SIZES if run.quick else SIZES)}
    growth = growth_exponent({n: s["tick"]["p50"] for n, s in sizes.items()})
    return {"sizes": sizes, "growth_exponent": growth, "two_months": two_months()}


def two_months() -> dict[str, float]:
    """Play paper A's 61 days once, virtually: processor seconds of the trace, the run and its summary."""
    began_s = time.process_time()
    scenario = paper_scenario(1)
    trace = generate(scenario)
    ready_s = time.process_time()
    run = simulate(scenario, trace)
    ran_s = time.process_time()
    run.summary()
    figures = {"cpu_s": time.process_time() - began_s, "run_s": ran_s - ready_s, "events": run.events}
    return {**figures, "events_per_s": run.events / figures["run_s"]}


def goals(result: Result) -> Iterator[Goal]:
    """Yield each goal of the sizes that were measured, and that of the 61 days."""
    sizes = result["sizes"]
    for hosts, figures in sizes.items():
        tick = figures["tick"]
        if limit_s := TARGETS_S.get(int(hosts)):
            yield at_most(f"a tick at {hosts} hosts, median", tick["p50"], limit_s, in_ms)
        times = tick["p99"] / tick["p50"]
        yield at_most(f"the same, p99 over median at {hosts}", times, MAX_P99_OVER_MEDIAN, "{:.2g}".format)
    if of := sizes.get("500"):
        times = of["ten_reclaims"]["p50"] / of["tick"]["p50"]
        yield at_most("ten reclaims over one, 500 hosts", times, SIMULTANEOUS, "{:.2g}".format)
    growth = result["growth_exponent"]
    yield at_most("hosts to the power of ..., the tick", growth, SUBLINEAR, "{:.2f}".format)
    yield at_most("61 days of reclaimnet", result["two_months"]["cpu_s"], TWO_MONTHS_S, "{:.3g} s".format)


def tables(result: Result) -> Iterator[Table | str]:
    """Yield medians and 99th percentiles in ms, a row a size, beside paper A's tick."""
    title = (
        f"ms: median (p99). The tick grows like hosts^{result['growth_exponent']:.2f}, "
        f"paper A's like hosts^{growth_exponent(PAPER_S):.2f}"
    )
    rows = []
    for hosts, figures in result["sizes"].items():
        spreads = [figures[name] for name in ("tick", *FIGURES)]
        tick, *others = (f"{s['p50'] * 1e3:.3g} ({s['p99'] * 1e3:.3g})" for s in spreads)
        paper_s = PAPER_S.get(int(hosts))
        paper = f"{paper_s * 1e3:g}" if paper_s else ""
        rows.append((hosts, str(figures["jobs"]), tick, paper, *others))
    yield table_of(title, ("hosts", "jobs", "tick", "paper A", *FIGURES.values()), rows)
    months = result["two_months"]
    yield (
        f"61 days, 54 hosts, reclaimnet: {months['cpu_s']:.1f} s of a processor, the run alone {months['run_s']:.1f} s, "
        f"{months['events_per_s']:,.0f} events/s"
    )


def measure_size(hosts: int) -> dict[str, Any]:
    """Return all figures of one size: medians and 99th percentiles in seconds."""
    core = coordinator_at_work(campus_of(hosts))
    at_work = AtWork(core, SAMPLES.get(hosts, 50))
    gc.collect()
    gc.freeze()
    try:
        times = at_work.all_times()
    finally:
        gc.unfreeze()
    return {
        "hosts": hosts,
        "jobs": len(core.cluster.jobs),
        "links": len(core.cluster.capacity.share),
        **{name: quantiles(taken) for name, taken in times.items()},
    }


class AtWork:
    """A coordinator under the stop-watch. Time in its world goes on by one control period a sample."""

    def __init__(self, core: Coordinator, samples: int) -> None:
        self.core, self.samples = core, samples
        self.now_s = core.cluster.now_s
        self.movable = [job for job in core.cluster.jobs.values() if job.host != job.standby]
        self._next = 0

    def all_times(self) -> dict[str, list[float]]:
        """Return seconds of each sample by name. The first periodic ticks send every agent everything."""
        for _ in range(3):
            self._periodic_tick()
        few = max(5, self.samples // 4)
        return {
            "tick": [self._reclaim(1) for _ in range(self.samples)],
            "periodic_tick": [self._periodic_tick() for _ in range(self.samples)],
            "ten_reclaims": [self._reclaim(SIMULTANEOUS) for _ in range(few)],
        }

    def _time(self, work: Callable[[], object]) -> float:
        began_s = time.process_time()
        work()
        return time.process_time() - began_s

    def _periodic_tick(self) -> float:
        self.now_s += self.core.cluster.protocol.control_period_s
        return self._time(lambda: self._event(ev.Woke()))

    def _reclaim(self, hosts: int) -> float:
        """Time the notices of that many owners at one moment; afterwards, unmeasured, they withdraw them."""
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
        """Handle all events of one moment, and the work put off for a moment because there are several."""
        for event in events:
            self._event(event)
        if len(events) > 1:
            self.now_s += TOGETHER_S
            self._event(ev.Woke())

    def _event(self, event: ev.Event) -> None:
        self.core.handle(event, self.now_s)
        self.core.next_deadline_s()

    def _jobs(self, count: int) -> list[JobState]:
        """Return the next jobs, in turn."""
        first, self._next = self._next, self._next + count
        return [self.movable[(first + i) % len(self.movable)] for i in range(min(count, len(self.movable)))]


def growth_exponent(seconds: dict[int, float]) -> float:
    """Return the slope of log time over log size, by least squares: 1 is linear."""
    x = [math.log(size) for size in seconds]
    y = [math.log(taken) for taken in seconds.values()]
    return statistics.linear_regression(x, y).slope
