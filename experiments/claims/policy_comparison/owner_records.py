"""Recorded owners as a campus: the records found, and the run of a system on one of them.

A record holds the times at which machines came and went. It has no jobs, links, notices or storage. The rest is taken
from paper A's campus: payloads, lengths of steps, loss budgets, background traffic and T_r. Two things are varied, and
every system is judged on each combination:

- *notice*: the length that clouds give. None, 30 s (Google's and Azure's preemptible machines), 120 s (Amazon's spot instances).
  The host is gone at the recorded moment, and the notice comes that much earlier.
- *storage*: with or without a host that has no owner and keeps checkpoints. Slurm's checkpoints are all there, and so are second
  copies of the rows that make any. Three rows do not use it. One-copy and the paper have one copy of each checkpoint, and the
  checkpoints of no-migration stay with their jobs. The gain of `reclaimnet` over these is the worth of a second copy.
  Without such a host Slurm's checkpoints go to the first host by name.

A host is a machine of one GPU. A record of counts has a host for each instance that it ever had at once; larger records
are scaled down to `MAX_HOSTS`. Each is played for as long as it lasts, two weeks at most. Counts of one folder are
also played together, as the zones of one region. A record of lifetimes is played for a week, by as many hosts as the
largest zone has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from experiments.claims.paper_a.campus_result import compact
from experiments.claims.paper_a.campus_runs import with_source
from experiments.inputs.scenario import InverseLaw, Scenario
from experiments.inputs.scenario.owners import HOUR_S, OwnerEvent
from experiments.inputs.traces import Trace, trace_of
from experiments.inputs.traces.availability_counts import Counts, together
from experiments.inputs.traces.generated import arrivals
from experiments.inputs.traces.paper_campus import DAY_S, paper_scenario
from experiments.inputs.traces.recorded import Record, read_record
from experiments.inputs.traces.trace import in_order
from experiments.runtime.tasks import Task
from experiments.worlds.virtual import simulate
from topologies.errors import SpecError
from topologies.presets import RTX3090, GpuShare, three_tier

NOTICES_S = (0.0, 30.0, 120.0)
STORAGES = (False, True)
MAX_DAYS, DAYS_OF_LIVES, QUICK_DAYS = 14.0, 7.0, 2.0
HOSTS_OF_LIVES, MAX_HOSTS = 16, 64
BUILDINGS = 3
# of the GPU time that owners lend: jobs share hosts and wait, and there is room to move to; the middle of .3 and .7, at which
# the paper's campus is judged beside its own 4 %
LOAD = 0.5
# as in the claim of both papers: short against a run, so that there are some hundreds, and long against what a move takes
JOB_MEAN_H, JOB_MOST_H = 4.0, 48.0


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """A record, or several of one folder at once. `name` is the file's (or folder's) below the folder that was given."""

    name: str
    files: tuple[Path, ...]

    @property
    def content(self) -> str:
        """Digest of what is in the files, wherever they lie."""
        return blake2b(b"".join(path.read_bytes() for path in self.files), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class TraceCase:
    """A record, a notice and a storage, on which the systems are compared."""

    record: OwnerRecord
    notice_s: float
    stores: bool

    @property
    def name(self) -> str:
        """The name by which `--only` finds it and the page shows it."""
        storage = "with a storage server" if self.stores else "no storage server"
        return f"{self.record.name}, notice {self.notice_s:g} s, {storage}"


@dataclass(frozen=True, slots=True)
class TraceRun:
    """A run of one system on one case."""

    case: TraceCase
    system: str
    seed: int
    most_days: float

    @property
    def task(self) -> Task:
        """Its task; the key names everything that the result depends on, but for the code."""
        content, days = self.case.record.content, f"{self.most_days:g} days at most"
        system = with_source(self.system)
        return Task(f"traces: {self.case.name}, {content}, {system}, seed {self.seed}, {days}", play, (self,))


def records(folder: Path) -> list[OwnerRecord]:
    """Return every record below a folder, by name, and the counts of each folder together.

    SpecError: no record, or an unreadable one.
    """
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".json", ".csv"))
    if not files:
        raise SpecError("--trace", str(folder), "a folder with records of owners (.json or .csv)")
    found = [OwnerRecord(path.relative_to(folder).with_suffix("").as_posix(), (path,)) for path in files]
    for place in sorted({path.parent for path in files}):
        zones = tuple(path for path in files if path.parent == place and isinstance(_read(path), Counts))
        if len(zones) > 1:
            name = place.relative_to(folder).as_posix()
            found.append(OwnerRecord(f"{name if name != '.' else folder.name}, all zones", zones))
    return found


def cases(folder: Path, only: Sequence[str] = ()) -> list[TraceCase]:
    """Return all cases, or those whose names hold one of these texts. SpecError: none does, or there is no record."""
    found = [
        TraceCase(record, notice_s, stores)
        for record in records(folder)
        for stores in STORAGES
        for notice_s in NOTICES_S
    ]
    chosen = [case for case in found if not only or any(text in case.name for text in only)]
    if not chosen:
        names = "; ".join(case.name for case in found)
        raise SpecError("--only", ", ".join(only), f"a part of the name of a case: {names}")
    return chosen


def recorded_campus(wanted: TraceRun) -> tuple[Scenario, Trace]:
    """Return the scenario and its trace, in real units. SpecError: a file is no record."""
    case, base = wanted.case, paper_scenario(wanted.seed)
    hosts, days = _size(case.record.files)
    days = min(days, wanted.most_days)
    scenario = replace(
        base,
        name="recorded-owners",
        duration_s=days * DAY_S,
        campus=three_tier(
            hosts, min(BUILDINGS, hosts), mix=(GpuShare(RTX3090, 1, 1),), reserve=base.campus.research_reserve
        ),
        protocol=replace(base.protocol, head_stores=case.stores),
        # the record has the times at which owners come and go
        owners=replace(base.owners, count=None, burst_share=0.0, lent_at_start=1.0),
    )
    trace = trace_of(scenario, case.record.files)
    gone = replace(trace, owner_events=with_notice(trace.owner_events, 0.0, scenario.duration_s))
    lent_h = lent_share(scenario, gone) * hosts * days * 24.0
    count = max(1, round(LOAD * lent_h / JOB_MEAN_H))
    median_h = JOB_MEAN_H * 0.6  # of a lognormal of sigma 1, about; the lengths are made to add up
    jobs = replace(
        base.jobs,
        interarrival=InverseLaw("exponential", days * DAY_S / count),
        run_time=InverseLaw("lognormal", median_h * HOUR_S, 1.0, 0.25 * HOUR_S, JOB_MOST_H * HOUR_S),
        count=count,
        work_s=LOAD * lent_h * HOUR_S,
    )
    scenario = replace(scenario, jobs=jobs)
    noticed = with_notice(trace.owner_events, case.notice_s, scenario.duration_s)
    return scenario, replace(trace, arrivals=arrivals(scenario), owner_events=noticed)


def lent_share(scenario: Scenario, trace: Trace) -> float:
    """Return the share of host-time in which hosts were lent, notices included."""
    hosts, end_s = len(scenario.volunteers), scenario.duration_s
    lent_s = hosts * end_s - len(trace.away) * end_s
    for event in trace.owner_events:
        left_s = max(0.0, end_s - event.gone_s)
        lent_s += left_s if event.kind == "return" else -left_s
    return lent_s / (hosts * end_s)


def with_notice(events: Sequence[OwnerEvent], notice_s: float, until_s: float) -> tuple[OwnerEvent, ...]:
    """Return the events with a notice before each recorded departure: at most half of the time that the host was there.

    So hosts are lent for the same time whatever the notice is.
    """
    since_s: dict[str, float] = {}
    told = []
    for event in events:
        if event.kind == "return":
            since_s[event.host] = event.at_s
            told.append(event)
        else:
            before_s = min(notice_s, (event.at_s - since_s.get(event.host, 0.0)) / 2.0)
            told.append(OwnerEvent(event.at_s - before_s, event.host, "reclaim", before_s))
    return in_order(told, until_s)


def play(wanted: TraceRun) -> dict[str, Any]:
    """Play one task; return its figures."""
    scenario, trace = recorded_campus(wanted)
    run = simulate(scenario, trace, wanted.seed, system=wanted.system)
    return compact(run, trace)


@lru_cache(maxsize=64)
def _size(files: tuple[Path, ...]) -> tuple[int, float]:
    """Return (hosts, days) of the campus that these records are played on."""
    found = [_read(path) for path in files]
    if counts := [each for each in found if isinstance(each, Counts)]:
        total = together(counts)
        hosts, span_s = max(total.available), total.gap_s * (len(total.available) - 1)
    else:
        hosts, span_s = HOSTS_OF_LIVES, DAYS_OF_LIVES * DAY_S
    return min(hosts, MAX_HOSTS), min(span_s / DAY_S, MAX_DAYS)


@lru_cache(maxsize=64)
def _read(path: Path) -> Record:
    """Read a file's record. SpecError names the file: it is no record, or holds events of one campus's hosts."""
    record = read_record(path)
    if record is None:
        allowed = "a record of machines anywhere: counts or preemptions"
        raise SpecError("--trace", "events of the hosts of one campus", allowed, str(path))
    return record
