"""The costs of the machinery in a live run, read from its journal: the virtual world's `Overheads`, measured instead of assumed.

Each cost is a difference of times in the journal, less the part that the job or the grant explains:

    start     from a dispatch to the first sign of the process (two messages are in it).
    finish    time beyond the steps of attempts that took no snapshot; without such attempts, the intercept of a line
              through the others.
    snapshot  time beyond the steps and `finish`, for each snapshot. If jobs pause only for a copy in memory, that time is
              `snapshot_pause`, and `snapshot` is the time that hosts report for writing it.
    commit    time beyond the bytes of transfers under one grant (the handshake is in it).
    switch    part of a notice that had passed when the host's agent read it.

A spread is the middle half of the observations, so one slow start does not count. The virtual world draws evenly from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    """Measured `costs`, assumed ones where there was no observation; `counts`: the observations behind each."""

    costs: Overheads
    counts: dict[str, int]


@dataclass(slots=True)
class _Attempt:
    """An attempt that the journal shows running."""

    since_s: float
    step: int
    speed: float = 1.0
    snapshots: int = 0


def measure_costs(facts: Sequence[Timed], trace: Trace, assumed: Overheads) -> MeasuredCosts:
    """Measure costs in a live run's facts and its trace as played."""
    starts: list[float] = []
    finished: list[tuple[int, float]] = []  # (snapshots, seconds beyond its steps) of each attempt
    writes: list[float] = []  # of snapshots of jobs that go on
    commits: list[float] = []  # of transfers whose grant never changed
    reads: list[float] = []  # the part of each notice that had passed
    dispatched: dict[tuple[str, int], tuple[float, float]] = {}  # when, and the speed of the GPU
    step_s: dict[str, float] = {}
    running: dict[tuple[str, int], _Attempt] = {}
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
                dispatched[fact.job, fact.attempt] = at_s, fact.speed
            case f.JobRunning():
                sent_s, speed = dispatched.pop((fact.job, fact.attempt), (None, 1.0))
                running.setdefault((fact.job, fact.attempt), _Attempt(at_s, fact.step, speed))
                if sent_s is not None:
                    starts.append(max(0.0, at_s - sent_s - 2.0 * assumed.message_s))
            case f.CheckpointTaken(final=False):
                if attempt := running.get((fact.job, fact.attempt)):
                    attempt.snapshots += 1
                if fact.write_s is not None and not fact.stopped:
                    writes.append(fact.write_s)
            case f.JobFinished() if attempt := running.get((fact.job, fact.attempt)):
                steps_s = (fact.step - attempt.step) * step_s[fact.job] / attempt.speed
                finished.append((attempt.snapshots, max(0.0, at_s - attempt.since_s - steps_s)))
            case f.Granted(job, source, destination, _, rate_bytes_per_s):
                grants.setdefault((job, source, destination), []).append(rate_bytes_per_s)
            case f.GrantEnded(job, source, destination):
                grants.pop((job, source, destination), None)
            case f.TransferFinished(ok=True):
                match grants.get((fact.job, fact.source, fact.destination)):
                    case [rate] if rate > 0.0:
                        paced_s = fact.bytes_sent / (rate * PACING_SHARE)
                        commits.append(max(0.0, fact.duration_s - paced_s - assumed.connect_s))
            case f.HostReclaimed() if fact.notice_s > 0.0 and notices.get(fact.host):
                reads.append(max(0.0, notices[fact.host].pop(0) - fact.notice_s))
    finishes = [beyond_s for snapshots, beyond_s in finished if not snapshots]
    if not finishes and len({snapshots for snapshots, _ in finished}) > 1:
        line = linear_regression(*zip(*finished, strict=True))
        finishes = [min(max(0.0, line.intercept), *(beyond_s for _, beyond_s in finished))]
    finish_s = median(finishes) if finishes else sum(assumed.finish_s) / 2.0
    pauses = [max(0.0, beyond_s - finish_s) / count for count, beyond_s in finished if count]
    snapshots = pauses if assumed.snapshot_pause_s is None else writes
    costs = replace(
        assumed,
        start_s=_span(starts, assumed.start_s),
        finish_s=_span(finishes, assumed.finish_s),
        commit_s=median(commits) if commits else assumed.commit_s,
        switch_s=_span(reads, assumed.switch_s),
    )
    found = {"start": starts, "finish": finishes, "snapshot": snapshots, "commit": commits, "switch": reads}
    if snapshots:  # whatever their size
        costs = replace(costs, snapshot_s=_span(snapshots, assumed.snapshot_s), snapshot_bytes_per_s=inf)
    if assumed.snapshot_pause_s is not None:
        found["snapshot_pause"] = pauses
        if pauses:
            spread = _span(pauses, assumed.snapshot_pause_s)
            costs = replace(costs, snapshot_pause_s=spread, snapshot_pause_bytes_per_s=inf)
    return MeasuredCosts(costs, {name: len(seen) for name, seen in found.items()})


def _span(seen: Sequence[float], assumed: Span) -> Span:
    low, high = quantile(seen, LOW), quantile(seen, HIGH)
    return assumed if low is None or high is None else (max(0.0, low), max(0.0, high))
