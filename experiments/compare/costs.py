"""What the machinery took in a live run, read from its journal: the virtual world's `Overheads`, measured instead of assumed.

Nothing is asked of the machine that the run itself did not do. Each figure is a difference of times in the journal, less what the
job or the grant explains:

    start     from a dispatch to the first sign of the process (two messages are in it)
    finish    what attempts that took no snapshot lasted beyond their steps; without such, where a line through the others begins
    snapshot  what attempts lasted beyond their steps and that, a snapshot. Where jobs stand still for a copy in memory alone that
              is `snapshot_pause`, and `snapshot` what hosts told of writing it
    commit    what transfers under one grant lasted beyond their bytes (the handshake is in it)
    switch    what of a notice had passed when its host's agent had read it

A spread is the middle half of what was seen: one start that met a busy second is not how starts are, and the virtual world draws
evenly from a spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from math import inf
from statistics import linear_regression, median

from controller.core.model import facts as f
from experiments.inputs.traces import Trace
from experiments.results.accounting import quantile
from experiments.results.history import Timed
from experiments.worlds.virtual.overheads import Overheads, Span
from testbed.enforcement import PACING_SHARE

LOW, HIGH = 0.25, 0.75


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """`costs` with what was measured in place of what `assumed` says; `counts`: how many observations each rests on."""

    costs: Overheads
    counts: dict[str, int]

    def told_to(self, assumed: Overheads) -> Overheads:
        """What another scenario assumes, with what was measured in its place."""
        seen = {name for name, count in self.counts.items() if count}
        if (
            assumed.snapshot_pause_s is None
        ):  # its jobs stand still for the whole of a snapshot, whatever these do
            seen.discard("snapshot_pause")
        measured = {each.name: getattr(self.costs, each.name) for each in fields(Overheads)}
        names = [name for name in measured if name.removesuffix("_s") in seen]
        names += [f"{name}_bytes_per_s" for name in ("snapshot", "snapshot_pause") if name in seen]
        return replace(assumed, **{name: measured[name] for name in names})


@dataclass(slots=True)
class _Run:
    """An attempt that was heard to run."""

    since_s: float
    step: int
    snapshots: int = 0
    beyond_s: float | None = None  # what it lasted beyond its steps, once it has finished


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the journals of live runs show."""

    starts_s: list[float] = field(default_factory=list)  # from a dispatch to the first sign of the process
    finished: list[tuple[int, float]] = field(default_factory=list)  # (snapshots, beyond_s) of attempts
    writes_s: list[float] = field(default_factory=list)  # of snapshots of jobs that were to go on
    beyond_bytes_s: list[float] = field(default_factory=list)  # of transfers whose grant never changed
    reads_s: list[float] = field(default_factory=list)  # by how much a notice was shorter when it was read

    def add(self, facts: Iterable[Timed], trace: Trace) -> None:
        """One more run."""
        dispatched: dict[tuple[str, int], float] = {}
        step_s: dict[str, float] = {}
        runs: dict[tuple[str, int], _Run] = {}
        grants: dict[tuple[str, str, str], list[float]] = {}
        notices: dict[str, list[float]] = {}
        for event in trace.owner_events:
            if event.kind == "reclaim" and event.notice_s > 0.0:
                notices.setdefault(event.host, []).append(event.notice_s)
        for at_s, fact in facts:
            match fact:
                case f.JobSubmitted():
                    step_s[fact.job] = fact.step_s
                case f.JobDispatched():
                    dispatched[fact.job, fact.attempt] = at_s
                case f.JobRunning():
                    runs.setdefault((fact.job, fact.attempt), _Run(at_s, fact.step))
                    if (sent_s := dispatched.pop((fact.job, fact.attempt), None)) is not None:
                        self.starts_s.append(at_s - sent_s)
                case f.CheckpointTaken(final=False):
                    if run := runs.get((fact.job, fact.attempt)):
                        run.snapshots += 1
                    if fact.write_s is not None and not fact.stopped:
                        self.writes_s.append(fact.write_s)
                case f.JobFinished() if run := runs.get((fact.job, fact.attempt)):
                    steps_s = (fact.step - run.step) * step_s[fact.job]
                    run.beyond_s = max(0.0, at_s - run.since_s - steps_s)
                case f.Granted(job, source, destination, _, rate_bytes_per_s):
                    grants.setdefault((job, source, destination), []).append(rate_bytes_per_s)
                case f.GrantEnded(job, source, destination):
                    grants.pop((job, source, destination), None)
                case f.TransferFinished(ok=True):
                    match grants.get((fact.job, fact.source, fact.destination)):
                        case [rate] if rate > 0.0:
                            paced_s = fact.bytes_sent / (rate * PACING_SHARE)
                            self.beyond_bytes_s.append(max(0.0, fact.duration_s - paced_s))
                case f.HostReclaimed() if fact.notice_s > 0.0 and notices.get(fact.host):
                    self.reads_s.append(max(0.0, notices[fact.host].pop(0) - fact.notice_s))
        self.finished.extend(
            (run.snapshots, run.beyond_s) for run in runs.values() if run.beyond_s is not None
        )


def measure_costs(facts: Sequence[Timed], trace: Trace, assumed: Overheads) -> MeasuredCosts:
    """Measure costs in a live run's facts and its trace as played."""
    return measure_costs_of([(facts, trace)], assumed)


def measure_costs_of(played: Sequence[tuple[Sequence[Timed], Trace]], assumed: Overheads) -> MeasuredCosts:
    """Measure costs in what several live runs show together."""
    seen = _Seen()
    for facts, trace in played:
        seen.add(facts, trace)
    finishes = [beyond_s for snapshots, beyond_s in seen.finished if not snapshots]
    if not finishes and len({snapshots for snapshots, _ in seen.finished}) > 1:
        # every attempt took snapshots: the line through them begins where one without any would be
        line = linear_regression(*zip(*seen.finished, strict=True))
        finishes = [min(max(0.0, line.intercept), *(beyond_s for _, beyond_s in seen.finished))]
    finish_s = median(finishes) if finishes else sum(assumed.finish_s) / 2.0
    pauses = [max(0.0, beyond_s - finish_s) / count for count, beyond_s in seen.finished if count]
    starts = [max(0.0, took_s - 2.0 * assumed.message_s) for took_s in seen.starts_s]
    commits = [max(0.0, took_s - assumed.connect_s) for took_s in seen.beyond_bytes_s]
    costs = replace(
        assumed,
        start_s=_span(starts, assumed.start_s),
        finish_s=_span(finishes, assumed.finish_s),
        commit_s=median(commits) if commits else assumed.commit_s,
        switch_s=_span(seen.reads_s, assumed.switch_s),
    )
    snapshots = pauses if assumed.snapshot_pause_s is None else seen.writes_s
    if snapshots:  # of whatever size they were
        costs = replace(costs, snapshot_s=_span(snapshots, assumed.snapshot_s), snapshot_bytes_per_s=inf)
    counts = {
        "start": len(starts),
        "finish": len(finishes),
        "snapshot": len(snapshots),
        "commit": len(commits),
        "switch": len(seen.reads_s),
    }
    if assumed.snapshot_pause_s is not None:
        counts["snapshot_pause"] = len(pauses)
        if pauses:
            of_copies = _span(pauses, assumed.snapshot_pause_s)
            costs = replace(costs, snapshot_pause_s=of_copies, snapshot_pause_bytes_per_s=inf)
    return MeasuredCosts(costs, counts)


def _span(seen: Sequence[float], assumed: Span) -> Span:
    low, high = quantile(seen, LOW), quantile(seen, HIGH)
    return assumed if low is None or high is None else (max(0.0, low), max(0.0, high))
