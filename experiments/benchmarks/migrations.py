"""Paper A's E2 and E3, live: K' owners give notice at one instant, their jobs cross one trunk beside greedy research.

Two buildings of eight hosts, a trunk between them that is narrower than an access link and carries two greedy research flows each
way (CUBIC, unpaced, from hosts that run no jobs). A run is a row of waves. In each, K' jobs start on one side while the other
side's owners are there; those come to lend, and then all owners of the jobs' side give the same notice. So a trace
fixes the moves, whatever places the jobs. Each wave goes the other way, and its jobs are done before the next begins.

*The bottleneck* (E3): the sides are the buildings, so that each move crosses the trunk. *Destinations* (E2): half of either
building is one side, so that a move may stay in its building; P2 against random choice.

Moves are read from the journal, and research from its receivers, in seconds. Every quarter of a second the counters of the
trunk's classes are read, and those of the hosts' ports for the testbed's own classes: a trunk with one queue has no such count.
"""

from __future__ import annotations

import math
import os
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from controller.core.model import facts as f
from experiments.benchmarks.frame import (
    KEPT,
    NOT_JUDGED,
    NOT_KEPT,
    Goal,
    Result,
    Run,
    all_kept,
    in_mbit,
    table_of,
)
from experiments.benchmarks.isolation import SHORT
from experiments.benchmarks.one_trunk import one_trunk
from experiments.inputs.scenario import Jobs, OwnerEvent, Protocol, Queue, ResearchFlow, Scenario
from experiments.inputs.scenario.law import InverseLaw
from experiments.inputs.scenario.owners import Owners
from experiments.inputs.traces import JobArrival, JobDraw, Trace
from experiments.results.history import Notice, notices
from experiments.results.live_display import Live
from experiments.results.pictures import MUTED, canvas, dress
from experiments.results.run_context import research_shares
from experiments.worlds.live.run import run_live
from experiments.worlds.live.world import LiveWorld
from experiments.worlds.played import Played
from testbed.emulation.description.shaping import ROOT_CLASS
from testbed.emulation.safety.observation import cause_of
from topologies.spec import Campus, GpuModel, ResearchReserve, Role
from topologies.units import MBIT_PER_S

TRUNK, ACCESS = 200 * MBIT_PER_S, 250 * MBIT_PER_S
LOCALITY = 3.4  # of paper A: what a building's paths carry over what its core does
RESERVE = ResearchReserve(beta=0.3, minimum_bytes_per_s=50 * MBIT_PER_S)
HOSTS = 8  # of a building
RESEARCH_FLOWS = 2  # each way
MOST = 7  # of paper A: departures at one time
KS, QUICK_KS = tuple(range(1, MOST + 1)), (MOST,)
DESTINATION_KS, QUICK_DESTINATION_KS = (4,) * 4, (4,)
# seven of these need four fifths of what the trunk's share carries in a notice less a restart
PAYLOAD_BYTES = 8_000_000
NOTICE_S, RESTART_S = 4.5, 0.5
STEP_S, STEPS = 0.25, 20
# of a wave: the other side's owners lend, the jobs' owners give notice, the next wave begins
LEND_S, NOTICE_AT_S, WAVE_S = 1.2, 2.5, 12.0
FIRST_S = 1.0
LAST_SHORTER_S = 3.0  # nothing comes after the last wave
SAMPLE_S, SPAN_S = 0.25, 1.0  # between samples; over which a peak is a mean
CAPABILITY, NO_JOBS = 8.0, 1.0  # what jobs ask of a GPU, and what research's hosts have
# paper A's words for its own system and its baseline
FIG_4 = {
    "reclaimnet": "all admitted in time",
    "as printed": "all admitted in time",
    "no enforcement": "later in proportion to K'",
}
PICTURE = "migrations.svg"


@dataclass(frozen=True, slots=True)
class System:
    """Policy of decisions, and enforcement of migrations at senders and on the switches' side."""

    name: str
    policy: str
    enforcement: str
    switches_hold: bool
    congestion: str = "cubic"


BOTTLENECK = (
    System("reclaimnet", "reclaimnet", "pace", switches_hold=True, congestion="bbr"),
    System("as printed", "reclaimnet-as-printed", "drop", switches_hold=False),
    System("reclaimnet, paper's drop bucket", "reclaimnet", "drop", switches_hold=False),
    System("reclaimnet, HTB classes only", "reclaimnet", "none", switches_hold=True),
    System("no enforcement", "no-tc-bpf", "none", switches_hold=False),
)
P2, RANDOM = "P2's destinations", "random destinations"
DESTINATIONS = (
    System(P2, "reclaimnet", "pace", switches_hold=True, congestion="bbr"),
    System(RANDOM, "random-dst", "pace", switches_hold=True, congestion="bbr"),
)


@dataclass(frozen=True, slots=True)
class MovedJob:
    """Outcome of one job at its owner's notice; seconds since the run's beginning, or of the notice on."""

    wave: int
    k: int
    job: str
    notice_at_s: float
    notice_s: float
    source: str
    destination: str | None  # where it ran on
    same_building: bool | None
    admitted: bool
    degraded: str | None
    # from the notice until the job ran on
    took_s: float | None
    downtime_s: float | None
    in_time: bool
    finished_first: bool  # the job was done before it was moved: no move, and in time
    cause: str  # of the delay, as the kernel saw it, if it was admitted and late


# ---------------------------------------------------------------- what is played


def two_buildings(trunk_bytes_per_s: float) -> Campus:
    """Return volunteers b1h1.. and b2h1.., research's hosts b1r1.. and b2r1.., and the trunk between them."""
    first, second = (
        [
            f"b{b}{kind}{n}"
            for kind, count in (("h", HOSTS), ("r", RESEARCH_FLOWS))
            for n in range(1, count + 1)
        ]
        for b in (1, 2)
    )
    models = {"": GpuModel("gpu", 24e9, CAPABILITY), "r": GpuModel("old", 1e9, NO_JOBS)}
    cables = dict.fromkeys(first, ACCESS), dict.fromkeys(second, ACCESS)
    return one_trunk(*cables, trunk_bytes_per_s, RESERVE, models)


def sides(*, across: bool) -> tuple[list[str], list[str]]:
    """Return the hosts between which jobs move: the two buildings, or half of both and the other half."""
    first, second = ([f"b{b}h{n}" for n in range(1, HOSTS + 1)] for b in (1, 2))
    if across:
        return first, second
    half = HOSTS // 2
    return first[:half] + second[:half], first[half:] + second[half:]


def waves(ks: Sequence[int], *, across: bool) -> Trace:
    """Return the trace of a run: one wave for each of `ks`."""
    here, there = sides(across=across)
    away, arrivals, events = tuple(there), [], []
    for number, k in enumerate(ks):
        begin_s = FIRST_S + number * WAVE_S
        for n in range(k):
            job = JobDraw(
                f"w{number}n{n}", PAYLOAD_BYTES, STEPS, STEP_S, 1.0, 8e9, CAPABILITY, loss_budget_s=3600.0
            )
            arrivals.append(JobArrival(begin_s, job))
        events += [OwnerEvent(begin_s + LEND_S, host, "return") for host in there]
        events += [OwnerEvent(begin_s + NOTICE_AT_S, host, "reclaim", NOTICE_S) for host in here]
        here, there = there, here
    return Trace(f"waves of {', '.join(map(str, ks))} moves", tuple(arrivals), tuple(events), away)


def trunk_of(*, across: bool) -> float:
    """Return the trunk's rate: the narrowest link for all together; or as much below an access link as the paper's core."""
    return TRUNK if across else ACCESS / LOCALITY


def scenario_of(system: System, ks: Sequence[int]) -> Scenario:
    """Return the scenario of a system; it is not scaled."""
    research = [
        ResearchFlow(f"b{a}r{n}", f"b{b}r{n}")
        for a, b in ((1, 2), (2, 1))
        for n in range(1, RESEARCH_FLOWS + 1)
    ]
    return Scenario(
        name="migrations",
        campus=two_buildings(trunk_of(across=system not in DESTINATIONS)),
        duration_s=FIRST_S + len(ks) * WAVE_S - LAST_SHORTER_S,
        queue=Queue(target_delay_s=60.0, learner="fixed", level_start=8.0),
        protocol=Protocol(
            policy=system.policy,
            enforcement=system.enforcement,
            congestion_control=system.congestion,
            snapshots="copy",
            checkpoint_share=0.2,
            restart_s=RESTART_S,
            control_period_s=0.5,
            lease_s=3.0,
        ),
        jobs=Jobs(count=0, memory=InverseLaw("deterministic", 8e9), min_capabilities=(CAPABILITY,)),
        owners=Owners(hazard_per_s=0.0),
        research=tuple(research),
    )


# ---------------------------------------------------------------- playing


def measure(
    run: Run, *, systems: Sequence[System] = (*BOTTLENECK, *DESTINATIONS), ks: Sequence[int] = ()
) -> dict[str, Any]:
    """Play every system: 10 minutes, `quick` 2. Also draws migrations.svg. `ks`: waves of every system."""
    runs = []
    for system in systems:
        across = system not in DESTINATIONS
        usual = (KS, QUICK_KS) if across else (DESTINATION_KS, QUICK_DESTINATION_KS)
        chosen = ks or usual[run.quick]
        run.progress(f"{system.name}: waves of {', '.join(map(str, chosen))} moves")
        runs.append(play(system, chosen, run.folder, across=across))
    draw(runs, run.folder / PICTURE)
    return {"payload_bytes": PAYLOAD_BYTES, "notice_s": NOTICE_S, "runs": runs}


def goals(result: Result) -> Iterator[Goal]:
    """Yield Theorem 3 and the reserve under `reclaimnet`, then the paper's figures beside these."""
    for run in result["runs"]:
        if run["system"] == "reclaimnet":
            waves = run["waves"]
            yield all_kept("admitted migrations are in time (Theorem 3)", [wave["promise"] for wave in waves])
            yield all_kept("research keeps its reserve beside them", [wave["reserve"] for wave in waves])
    for words, printed, here, _ in paper_rows(result):
        yield Goal(words, f"paper A: {printed}" if printed else "", here, None)


def play(system: System, ks: Sequence[int], out: Path, *, across: bool) -> dict[str, Any]:
    """Play one run; return its moves, seconds of research, samples of the trunk, and the outcome of each wave."""
    scenario, trunk = scenario_of(system, ks), TrunkSamples()
    with Path(os.devnull).open("w") as nowhere:
        played = run_live(
            scenario,
            waves(ks, across=across),
            out / system.name.replace(" ", "-").replace(",", "").replace("'", ""),
            partial(Live, scenario, Console(file=nowhere)),
            switches_hold=system.switches_hold,
            beside=trunk.watched,
        )
    fidelity = played.context.fidelity
    return judged(
        {
            "system": system.name,
            "policy": system.policy,
            "enforcement": system.enforcement,
            "switches_hold": system.switches_hold,
            "across": across,
            "trunk_bytes_per_s": trunk_of(across=across),
            "reserve_bytes_per_s": RESERVE.reserve_bytes_per_s(trunk_of(across=across)),
            "ks": list(ks),
            "valid": fidelity.valid and played.context.ended == "completed",
            "reasons": [
                *fidelity.reasons,
                *([] if played.context.ended == "completed" else [played.context.ended]),
            ],
            "moves": [asdict(move) for move in moves(played)],
            "research": research(played),
            "trunk": trunk.samples,
        }
    )


class TrunkSamples:
    """Samples of the trunk's traffic, each way, and of migrations at the hosts' ports."""

    def __init__(self) -> None:
        self.samples: list[dict[str, float]] = []

    @contextmanager
    def watched(self, world: LiveWorld) -> Iterator[None]:
        """Sample in a thread while the block runs; times are the run's."""
        ending = threading.Event()
        thread = threading.Thread(target=self._sample, args=(world, ending), name="trunk")
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()

    def _sample(self, world: LiveWorld, ending: threading.Event) -> None:
        campus = world.campus
        buildings = {
            building: [
                host.name for host in campus.spec.hosts_of(Role.VOLUNTEER) if host.building == building
            ]
            for building in ("b1", "b2")
        }
        while not ending.wait(SAMPLE_S):
            self.samples.append(
                {
                    "at_s": time.monotonic() - world.started_s,
                    "b1_bytes": campus.class_counters("s1", "s2")[ROOT_CLASS].sent_bytes,
                    "b2_bytes": campus.class_counters("s2", "s1")[ROOT_CLASS].sent_bytes,
                }
                | {
                    f"{building}_own_bytes": sum(campus.port_counters(host).own.bytes for host in hosts)
                    for building, hosts in buildings.items()
                }
            )


# ---------------------------------------------------------------- reading a run


def moves(played: Played) -> list[MovedJob]:
    """Return every (job, notice) of the waves, in order."""
    # of each job: when it began to run, where, and how long it had stood still
    running: dict[str, list[tuple[float, str, float | None]]] = {}
    for at_s, fact in played.facts:
        if isinstance(fact, f.JobRunning):
            running.setdefault(fact.job, []).append((at_s, fact.host, fact.downtime_s))
    done = {fact.job: at_s for at_s, fact in played.facts if isinstance(fact, f.JobFinished)}
    campus, found = played.context.campus, []
    per_wave: dict[int, int] = {}
    told = [notice for notice in notices(played.facts) if notice.job.startswith("w")]
    for notice in told:
        per_wave[_wave(notice)] = per_wave.get(_wave(notice), 0) + 1
    for notice in told:
        after = next((each for each in running.get(notice.job, []) if each[0] > notice.at_s), None)
        destination = after[1] if after else None
        took_s = after[0] - notice.at_s if after else None
        finished_first = after is None and done.get(notice.job, math.inf) <= notice.deadline_s
        in_time = finished_first or (took_s is not None and took_s <= notice.notice_s)
        admitted = notice.admitted_s is not None and notice.degraded is None
        building = {host.name: host.building for host in campus.hosts}
        hosts = [notice.source, *([destination] if destination else [])]
        late = admitted and not in_time
        cause = cause_of(played.context.fidelity.disturbances, hosts, notice.at_s, notice.deadline_s)
        found.append(
            MovedJob(
                wave=_wave(notice),
                k=per_wave[_wave(notice)],
                job=notice.job,
                notice_at_s=notice.at_s,
                notice_s=notice.notice_s,
                source=notice.source,
                destination=destination,
                same_building=building[notice.source] == building[destination] if destination else None,
                admitted=admitted,
                degraded=notice.degraded,
                took_s=took_s,
                downtime_s=after[2] if after else None,
                in_time=in_time,
                finished_first=finished_first,
                cause=cause if late else "",
            )
        )
    return found


def _wave(notice: Notice) -> int:
    return round((notice.at_s - FIRST_S - NOTICE_AT_S) // WAVE_S)


def research(played: Played) -> list[dict[str, Any]]:
    """Return every second of each research flow: its end, its building, and the rate of all research on the trunk."""
    return [
        {
            "at_s": each.sample.at_s,
            "building": each.sample.source[:2],
            "source": each.sample.source,
            "bytes": each.sample.payload_bytes,
            "together_bytes_per_s": each.wire_bytes_per_s,
        }
        for each in research_shares(played.context)
    ]


def judged(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run with the outcome of each wave: a pure function of the JSON's samples."""
    found, least = [], (1.0 - SHORT) * run["reserve_bytes_per_s"]
    for wave in sorted({move["wave"] for move in run["moves"]}):
        members = [move for move in run["moves"] if move["wave"] == wave]
        begin_s = min(move["notice_at_s"] for move in members)
        ends_s = [begin_s + NOTICE_S, *(begin_s + move["took_s"] for move in members if move["took_s"])]
        # a wave that is late lasts longer, but not into the next
        end_s = min(max(ends_s), begin_s + WAVE_S - NOTICE_AT_S)
        building = members[0]["source"][:2]
        seconds = [
            each["together_bytes_per_s"]
            for each in run["research"]
            if each["building"] == building and begin_s <= each["at_s"] - 1.0 and each["at_s"] <= end_s
        ]
        within = [each for each in run["trunk"] if begin_s <= each["at_s"] <= end_s]
        admitted = [move for move in members if move["admitted"]]
        worst = min(seconds, default=None)
        found.append(
            {
                "wave": wave,
                "k": len(members),
                "admitted": len(admitted),
                "in_time": sum(move["in_time"] for move in members),
                "last_took_s": max((move["took_s"] for move in members if move["took_s"]), default=None),
                "research_worst_bytes_per_s": worst,
                "research_median_bytes_per_s": statistics.median(seconds) if seconds else None,
                "migration_peak_bytes_per_s": peak_bytes_per_s(within, f"{building}_own_bytes"),
                "trunk_use": _mean(within, f"{building}_bytes") / run["trunk_bytes_per_s"],
                "promise": _verdict([move["in_time"] for move in admitted], valid=run["valid"]),
                "reserve": _verdict([each >= least for each in seconds], valid=run["valid"]),
            }
        )
    return run | {"waves": found}


def _verdict(holds: Sequence[bool], *, valid: bool) -> str:
    """Return the verdict that all hold; none of an empty list, nor of an invalid run."""
    if not valid or not holds:
        return NOT_JUDGED
    return KEPT if all(holds) else NOT_KEPT


def peak_bytes_per_s(samples: Sequence[Mapping[str, float]], key: str) -> float:
    """Return the greatest mean rate of a counter over SPAN_S; 0 if the samples do not span it."""
    rates = []
    for number, first in enumerate(samples):
        last = next((each for each in samples[number:] if each["at_s"] - first["at_s"] >= SPAN_S), None)
        if last is not None:
            rates.append((last[key] - first[key]) / (last["at_s"] - first["at_s"]))
    return max(rates, default=0.0)


def _mean(samples: Sequence[Mapping[str, float]], key: str) -> float:
    if len(samples) < 2:
        return 0.0
    first, last = samples[0], samples[-1]
    return (last[key] - first[key]) / (last["at_s"] - first["at_s"])


def downtimes_s(run: Mapping[str, Any]) -> list[float]:
    """Return the downtimes of all moves that ran on, ascending."""
    return sorted(move["downtime_s"] for move in run["moves"] if move["downtime_s"] is not None)


# ---------------------------------------------------------------- showing


def tables(result: Result) -> Iterator[Table | str]:
    """Yield the bottleneck by system and K', the paper's figures, invalid runs, and reasons of late moves."""
    trunk, reserve = TRUNK / MBIT_PER_S, RESERVE.reserve_bytes_per_s(TRUNK) / MBIT_PER_S
    rows: list[tuple[str, ...]] = []
    for run in result["runs"]:
        if run["across"]:
            rows += [(), (run["system"],)]
            rows += [
                (
                    f"  {wave['k']}",
                    f"{wave['admitted']}",
                    f"{wave['in_time']}",
                    "" if wave["last_took_s"] is None else f"{wave['last_took_s']:.2f} s",
                    wave["promise"],
                    ", ".join(in_mbit(wave[f"research_{name}_bytes_per_s"]) for name in ("worst", "median")),
                    wave["reserve"],
                    f"{wave['migration_peak_bytes_per_s'] / run['trunk_bytes_per_s']:.2f}",
                    f"{wave['trunk_use']:.0%}",
                )
                for wave in run["waves"]
            ]
    yield table_of(
        f"E3: K' notices of {result['notice_s']:g} s, {result['payload_bytes'] / 1e6:g} MB each, over a trunk of {trunk:g} "
        f"Mbit/s, {reserve:g} for research",
        ("K'", "admitted", "in time", "last after", "promise", "research", "reserve", "peak", "trunk used"),
        rows,
        "Mbit/s on the wire. in time: ran on elsewhere before the notice ended; promise: all that were admitted did; research: "
        "its worst and median second; reserve: kept if the worst has it; peak: the testbed's own classes at the ports of the "
        "jobs' building, greatest second",
    )
    heads = ("", "printed", "here", "why they differ")
    yield table_of("Paper A's figures beside these", heads, paper_rows(result))
    for run in result["runs"]:
        if not run["valid"]:
            yield f"{run['system']}: not judged: {'; '.join(run['reasons'])}"
        late: dict[int, list[Mapping[str, Any]]] = {}
        for move in run["moves"]:
            if move["cause"]:
                late.setdefault(move["k"], []).append(move)
        for k, group in late.items():
            took_s = [move["took_s"] or math.inf for move in group]
            (cause, _), *_ = Counter(move["cause"] for move in group).most_common(1)
            span = f"{min(took_s):.1f} to {max(took_s):.1f} s"
            yield f"{run['system']}, K' = {k}: {len(group)} admitted were late ({span}): {cause}"


def paper_rows(result: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield (figure, printed value, measured value, reason of the difference)."""
    runs = {run["system"]: run for run in result["runs"]}
    for name, run in runs.items():
        if run["across"]:
            admitted = [move for move in run["moves"] if move["admitted"]]
            late = sum(not move["in_time"] for move in admitted)
            printed = FIG_4.get(name, "")
            here = f"{len(admitted) - late} of {len(admitted)} in time{_invalid(run)}"
            yield f"Fig. 4, {name}", printed, here, "what kept each is listed below" if late else ""
    for name, printed in (
        ("reclaimnet", "2.8 % degradation"),
        ("no enforcement", "31 %; near zero (Fig. 5)"),
    ):
        if name in runs and (seconds := _wave_seconds(run := runs[name])):
            short = statistics.fmean(max(0.0, 1.0 - each / run["reserve_bytes_per_s"]) for each in seconds)
            here = (
                f"{short:.1%} below the reserve, worst second {in_mbit(min(seconds))} Mbit/s{_invalid(run)}"
            )
            why = f"greedy flows have no load to degrade from, so below the reserve; TCP shares by flow, {RESEARCH_FLOWS} here"
            yield f"E3, research, {name}", printed, here, why
    for name, printed in (
        ("reclaimnet", "4.2 of 6 Gbit/s: .70"),
        ("no enforcement", "6.8 of 6 Gbit/s: 1.13"),
    ):
        if name in runs:
            run = runs[name]
            peaks = (wave["migration_peak_bytes_per_s"] for wave in run["waves"])
            peak = max(peaks, default=0.0) / run["trunk_bytes_per_s"]
            why = "the paper does not print its bottleneck: 6 Gbit/s follows from 30 % headroom"
            yield f"E3, burst of migrations, {name}", printed, f"{peak:.2f} of the trunk{_invalid(run)}", why
    if (own := runs.get(P2)) and (other := runs.get(RANDOM)):
        here = ", ".join(f"{_share_in_building(run):.0%} {run['system']}" for run in (own, other)) + _invalid(
            own, other
        )
        yield (
            "E2, moves within the building",
            "71 % (P2)",
            here,
            "half of the free hosts are in the same building",
        )
        for share, printed in ((0.5, "38 % less"), (0.99, "52 % less")):
            mine, its = (downtimes_s(run) for run in (own, other))
            if mine and its:
                a, b = (float(np.quantile(values, share)) for values in (mine, its))
                here = f"{a:.2f} against {b:.2f} s: {1 - a / b:.0%} less{_invalid(own, other)}"
                why = f"{len(mine)} and {len(its)} moves; restarts and machinery weigh more beside 8 MB"
                yield f"E2, downtime, p{share * 100:g}", printed, here, why


def _wave_seconds(run: Mapping[str, Any]) -> list[float]:
    """Return research's rate in each second of the waves' notices, their way."""
    found = []
    for move in {(move["wave"], move["notice_at_s"], move["source"][:2]) for move in run["moves"]}:
        _, begin_s, building = move
        found += [
            each["together_bytes_per_s"]
            for each in run["research"]
            if each["building"] == building and begin_s <= each["at_s"] - 1.0 <= begin_s + NOTICE_S - 1.0
        ]
    return found


def _share_in_building(run: Mapping[str, Any]) -> float:
    known = [move["same_building"] for move in run["moves"] if move["same_building"] is not None]
    return statistics.fmean(known) if known else 0.0


def _invalid(*runs: Mapping[str, Any]) -> str:
    return "" if all(run["valid"] for run in runs) else " (not judged)"


def draw(runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw completion and research over K', downtimes of the bottleneck, and of P2's and random destinations."""
    across = [run for run in runs if run["across"]]
    others = [run for run in runs if not run["across"]]
    with canvas(path, 2, 2, (12, 8), "Simultaneous notices over one trunk") as (_, panels):
        (completion, kept), (down, destinations) = panels
        for run in across:
            ks = [wave["k"] for wave in run["waves"]]
            completion.plot(
                ks, [wave["last_took_s"] for wave in run["waves"]], marker="o", label=run["system"]
            )
            worst = [(wave["research_worst_bytes_per_s"] or 0.0) / MBIT_PER_S for wave in run["waves"]]
            kept.plot(ks, worst, marker="o", label=run["system"])
        completion.axhline(NOTICE_S, linestyle=":", color=MUTED)
        kept.axhline(RESERVE.reserve_bytes_per_s(TRUNK) / MBIT_PER_S, linestyle=":", color=MUTED)
        for axes in (completion, kept):
            axes.set_xticks(range(1, MOST + 1))
            axes.set_xlim(0.5, MOST + 0.5)
            axes.set_ylim(bottom=0)
        dress(completion, "K'", "s", "from the notice until the last job ran on; dotted: the notice")
        dress(kept, "K'", "Mbit/s", "research in the wave's worst second; dotted: its reserve")
        for axes, shown, title in (
            (down, across, "downtime of a move over the trunk"),
            (destinations, others, "downtime by choice of destination"),
        ):
            for run in shown:
                values = downtimes_s(run)
                shares = np.arange(len(values) + 1) / max(1, len(values))
                if values:
                    axes.step([values[0], *values], shares, where="post", label=run["system"])
            dress(axes, "s", "share of moves", title)
        for axes in panels.flat:
            if axes.get_legend_handles_labels()[0]:
                axes.legend()
