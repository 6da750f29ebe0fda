"""Paper A's E3, live: K' owners give notice at one instant, their jobs cross one trunk beside greedy research.

The campus has two buildings of eight hosts. The trunk between them is narrower than an access link. Two greedy research
flows cross it each way (CUBIC, unpaced, from hosts that run no jobs). A run is a row of waves. In each, K' jobs start
in one building while the other building's owners have their hosts. Those lend them, and then all owners of the jobs'
building give the same notice. So a trace fixes the moves, whatever places the jobs. Each wave goes the other way, and
its jobs are done before the next begins.

Moves are read from the journal, and research from its receivers, in seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from rich.table import Table

from controller.core.model import facts as f
from experiments.benchmarks.frame import Goal, Result, Run, all_kept, in_mbit, table_of, verdict
from experiments.benchmarks.isolation import SHORT
from experiments.benchmarks.one_trunk import one_trunk
from experiments.inputs.scenario import Jobs, OwnerEvent, Protocol, Queue, ResearchFlow, Scenario, Trust
from experiments.inputs.scenario.law import InverseLaw
from experiments.inputs.scenario.owners import Owners
from experiments.inputs.traces import JobArrival, JobDraw, Trace
from experiments.results.history import Notice, notices
from experiments.results.live_lines import unseen
from experiments.results.run_context import research_shares
from experiments.worlds.live.run import run_live
from experiments.worlds.played import Played
from testbed.emulation.safety.observation import cause_of
from topologies.spec import Campus, GpuModel, ResearchReserve
from topologies.units import MBIT_PER_S

TRUNK, ACCESS = 200 * MBIT_PER_S, 250 * MBIT_PER_S
RESERVE = ResearchReserve(beta=0.3, minimum_bytes_per_s=50 * MBIT_PER_S)
RESERVED = RESERVE.reserve_bytes_per_s(TRUNK)
HOSTS = 8  # of a building
RESEARCH_FLOWS = 2  # each way
MOST = 7  # of paper A: departures at one time
KS, QUICK_KS = tuple(range(1, MOST + 1)), (MOST,)
# seven of these need four fifths of what the trunk's share carries in a notice less a restart
PAYLOAD_BYTES = 8_000_000
TRANSFERS = "plain"  # as the figures beside it were measured
NOTICE_S, RESTART_S = 4.5, 0.5
STEP_S, STEPS = 0.25, 20
# of a wave: the other building's owners lend, the jobs' owners give notice, the next wave begins
LEND_S, NOTICE_AT_S, WAVE_S = 1.2, 2.5, 12.0
FIRST_S = 1.0
LAST_SHORTER_S = 3.0  # nothing comes after the last wave
CAPABILITY, NO_JOBS = 8.0, 1.0  # what jobs ask of a GPU, and what research's hosts have
# paper A's words of its own system and its baseline: on Fig. 4, and on what research loses in E3
PRINTED = {
    "reclaimnet": ("all admitted in time", "2.8 % degradation"),
    "as printed": ("all admitted in time", ""),
    "no enforcement": ("later in proportion to K'", "31 %; near zero (Fig. 5)"),
}


@dataclass(frozen=True, slots=True)
class System:
    """Policy of decisions, and enforcement of migrations at senders and on the switches' side."""

    name: str
    policy: str
    enforcement: str
    switches_hold: bool
    congestion: str = "cubic"


SYSTEMS = (
    System("reclaimnet", "reclaimnet", "pace", switches_hold=True, congestion="bbr"),
    System("as printed", "reclaimnet-as-printed", "drop", switches_hold=False),
    System("reclaimnet, paper's drop bucket", "reclaimnet", "drop", switches_hold=False),
    System("reclaimnet, HTB classes only", "reclaimnet", "none", switches_hold=True),
    System("no enforcement", "no-tc-bpf", "none", switches_hold=False),
)


# ---------------------------------------------------------------- what is played


def two_buildings() -> Campus:
    """Return volunteers b1h1.. and b2h1.., research's hosts b1r1.. and b2r1.., and the trunk between them."""
    first, second = (
        {f"b{b}{kind}{n}": ACCESS for kind, count in (("h", HOSTS), ("r", RESEARCH_FLOWS)) for n in range(1, count + 1)}
        for b in (1, 2)
    )
    models = {"": GpuModel("gpu", 24e9, CAPABILITY), "r": GpuModel("old", 1e9, NO_JOBS)}
    return one_trunk(first, second, TRUNK, RESERVE, models)


def waves(ks: Sequence[int]) -> Trace:
    """Return the trace of a run: one wave for each of `ks`."""
    here, there = ([f"b{b}h{n}" for n in range(1, HOSTS + 1)] for b in (1, 2))
    away, arrivals, events = tuple(there), [], []
    for number, k in enumerate(ks):
        begin_s = FIRST_S + number * WAVE_S
        for n in range(k):
            job = JobDraw(f"w{number}n{n}", PAYLOAD_BYTES, STEPS, STEP_S, 1.0, 8e9, CAPABILITY, loss_budget_s=3600.0)
            arrivals.append(JobArrival(begin_s, job))
        events += [OwnerEvent(begin_s + LEND_S, host, "return") for host in there]
        events += [OwnerEvent(begin_s + NOTICE_AT_S, host, "reclaim", NOTICE_S) for host in here]
        here, there = there, here
    return Trace(f"waves of {', '.join(map(str, ks))} moves", tuple(arrivals), tuple(events), away)


def scenario_of(system: System, ks: Sequence[int]) -> Scenario:
    """Return the scenario of a system; it is not scaled."""
    research = [
        ResearchFlow(f"b{a}r{n}", f"b{b}r{n}") for a, b in ((1, 2), (2, 1)) for n in range(1, RESEARCH_FLOWS + 1)
    ]
    return Scenario(
        name="migrations",
        campus=two_buildings(),
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
        trust=Trust(transfers=TRANSFERS),
    )


def measure(run: Run, *, systems: Sequence[System] = SYSTEMS, ks: Sequence[int] = ()) -> dict[str, Any]:
    """Play every system: 8 minutes, `quick` 2. `ks`: waves of every system."""
    runs, chosen = [], ks or (QUICK_KS if run.quick else KS)
    for system in run.each(systems, lambda each: each.name):
        scenario = scenario_of(system, chosen)
        played = run_live(
            scenario,
            waves(chosen),
            run.folder / system.name.replace(" ", "-").replace(",", "").replace("'", ""),
            unseen,
            switches_hold=system.switches_hold,
        )
        runs.append({"system": system.name, **judged(played)})
    return {"payload_bytes": PAYLOAD_BYTES, "notice_s": NOTICE_S, "transfers": TRANSFERS, "runs": runs}


# ---------------------------------------------------------------- reading a run


def judged(played: Played) -> dict[str, Any]:
    """Return the validity of a run, and the outcome of each of its waves."""
    done_s = {fact.job: at_s for at_s, fact in played.facts if isinstance(fact, f.JobFinished)}
    seconds = [
        (each.sample.at_s, each.sample.source[:2], each.wire_bytes_per_s) for each in research_shares(played.context)
    ]
    fidelity, ended = played.context.fidelity, played.context.ended
    valid = fidelity.valid and ended == "completed"
    members: dict[int, list[Notice]] = {}
    for notice in notices(played.facts):
        number = round((notice.at_s - FIRST_S - NOTICE_AT_S) // WAVE_S)
        members.setdefault(number, []).append(notice)
    found = []
    for wave in members.values():
        late = [
            notice
            for notice in wave
            if notice.admitted_s is not None
            and notice.degraded is None
            and not notice.in_time
            # a job that is done before it was moved is in time, too
            and done_s.get(notice.job, inf) > notice.deadline_s
        ]
        causes = [
            cause_of(fidelity.disturbances, [each.source, each.destination or each.source], each.at_s, each.deadline_s)
            for each in late
        ]
        found.append(judged_wave(wave, len(late), seconds, valid=valid) | {"causes": causes})
    reasons = [*fidelity.reasons, *([] if ended == "completed" else [ended])]
    return {"valid": valid, "reasons": reasons, "waves": found}


def judged_wave(
    wave: Sequence[Notice], late: int, seconds: Sequence[tuple[float, str, float]], *, valid: bool
) -> dict[str, Any]:
    """Return the figures of one wave. `late`: of its moves; `seconds`: (end, building, rate of research on the trunk)."""
    begin_s, building = min(notice.at_s for notice in wave), wave[0].source[:2]
    took_s = [notice.finished_s - begin_s for notice in wave if notice.finished_s is not None]
    # a wave that is late lasts longer, but not into the next
    end_s = begin_s + min(max([NOTICE_S, *took_s]), WAVE_S - NOTICE_AT_S)
    research = [rate for at_s, of, rate in seconds if of == building and begin_s <= at_s - 1.0 and at_s <= end_s]
    admitted = sum(notice.admitted_s is not None and notice.degraded is None for notice in wave)
    return {
        "k": len(wave),
        "admitted": admitted,
        "in_time": admitted - late,
        "last_took_s": max(took_s, default=None),
        "research_bytes_per_s": research,
        "promise": verdict(not late, valid=valid and admitted > 0),
        "reserve": verdict(min(research, default=0.0) >= (1.0 - SHORT) * RESERVED, valid=valid and bool(research)),
    }


def goals(result: Result) -> Iterator[Goal]:
    """Yield Theorem 3 and the reserve under `reclaimnet`, then the paper's figures beside these."""
    for run in result["runs"]:
        if run["system"] == "reclaimnet":
            yield all_kept("admitted migrations are in time (Theorem 3)", [w["promise"] for w in run["waves"]])
            yield all_kept("research keeps its reserve beside them", [w["reserve"] for w in run["waves"]])
    for run in result["runs"]:
        of_moves, of_research = PRINTED.get(run["system"], ("", ""))
        doubt = "" if run["valid"] else " (not judged)"
        if of_moves:
            admitted, in_time = (sum(wave[key] for wave in run["waves"]) for key in ("admitted", "in_time"))
            what, here = f"Fig. 4, {run['system']}", f"{in_time} of {admitted} in time{doubt}"
            yield Goal(what, f"paper A: {of_moves}", here, None)
        if of_research and (rates := [rate for wave in run["waves"] for rate in wave["research_bytes_per_s"]]):
            short = statistics.fmean(max(0.0, 1.0 - rate / RESERVED) for rate in rates)
            here = f"{short:.1%} below the reserve, worst second {in_mbit(min(rates))} Mbit/s{doubt}"
            yield Goal(f"E3, research, {run['system']}", f"paper A: {of_research}", here, None)


def tables(result: Result) -> Iterator[Table | str]:
    """Yield outcomes by system and K', invalid runs, and reasons of late moves."""
    rows: list[tuple[str, ...]] = []
    for run in result["runs"]:
        rows += [(), (run["system"],), *(_row(wave) for wave in run["waves"])]
    yield table_of(
        f"E3: K' notices of {result['notice_s']:g} s, {result['payload_bytes'] / 1e6:g} MB each, over a trunk of "
        f"{in_mbit(TRUNK)} Mbit/s, {in_mbit(RESERVED)} for research",
        ("K'", "admitted", "in time", "last after", "promise", "research", "reserve"),
        rows,
        "Mbit/s on the wire. in time: ran on elsewhere, or was done, before the notice ended; promise: all admitted did; "
        "research: its worst and median second; reserve: kept if the worst has it; "
        f"transfers are {result.get('transfers', TRANSFERS)}",
    )
    for run in result["runs"]:
        if not run["valid"]:
            yield f"{run['system']}: not judged: {'; '.join(run['reasons'])}"
        for wave in run["waves"]:
            if causes := wave["causes"]:
                cause = statistics.mode(causes)
                yield f"{run['system']}, K' = {wave['k']}: {len(causes)} admitted were late: {cause}"


def _row(wave: Mapping[str, Any]) -> tuple[str, ...]:
    last_s, research = wave["last_took_s"], wave["research_bytes_per_s"]
    return (
        f"  {wave['k']}",
        f"{wave['admitted']}",
        f"{wave['in_time']}",
        "" if last_s is None else f"{last_s:.2f} s",
        wave["promise"],
        f"{in_mbit(min(research))}, {in_mbit(statistics.median(research))}" if research else "",
        wave["reserve"],
    )
