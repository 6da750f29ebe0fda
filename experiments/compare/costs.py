"""What the machinery took in a live run, read from its journal: the virtual world's `Overheads`, measured instead of assumed.

Nothing is asked of the machine that the run itself did not do. Each figure is a difference of times in the journal, less what the
job or the grant explains:

    start     from a dispatch to the first sign of the process (two messages are in it)
    finish    what attempts that took no snapshot lasted beyond their steps; without such, where a line through the others begins
    snapshot  what attempts lasted beyond their steps and that, a snapshot
    commit    what transfers under one grant lasted beyond their bytes (the handshake is in it)
    switch    what of a notice had passed when its host's agent had read it

A spread is the middle half of what was seen: one start that met a busy second is not how starts are, and the virtual world draws
evenly from a spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
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
        measured = {field.name: getattr(self.costs, field.name) for field in fields(Overheads)}
        names = [name for name in measured if name.removesuffix("_s") in seen]
        names += ["snapshot_bytes_per_s"] if "snapshot" in seen else []
        return replace(assumed, **{name: measured[name] for name in names})


@dataclass(slots=True)
class _Run:
    """An attempt that was heard to run."""

    since_s: float
    step: int
    snapshots: int = 0
    lasted_beyond_s: float | None = None


def measure_costs(facts: Sequence[Timed], trace: Trace, assumed: Overheads) -> MeasuredCosts:
    """From a live run's facts and its trace as played."""
    return measure_costs_of([(facts, trace)], assumed)


def measure_costs_of(played: Sequence[tuple[Sequence[Timed], Trace]], assumed: Overheads) -> MeasuredCosts:
    """From what several live runs show together."""
    ended = [run for facts, _ in played for run in _runs(facts) if run.lasted_beyond_s is not None]
    finishes = _finishes(ended)
    finish_s = median(finishes) if finishes else sum(assumed.finish_s) / 2.0
    paused = [max(0.0, _beyond_s(run) - finish_s) / run.snapshots for run in ended if run.snapshots]
    starts = [max(0.0, took_s - 2.0 * assumed.message_s) for facts, _ in played for took_s in _starts(facts)]
    sent = [took_s for facts, _ in played for took_s in _beyond_bytes(facts)]
    commits = [max(0.0, took_s - assumed.connect_s) for took_s in sent]
    reads = [took_s for facts, trace in played for took_s in _reads(facts, trace)]
    costs = replace(
        assumed,
        start_s=_span(starts, assumed.start_s),
        finish_s=_span(finishes, assumed.finish_s),
        snapshot_s=_span(paused, assumed.snapshot_s),
        snapshot_bytes_per_s=inf if paused else assumed.snapshot_bytes_per_s,  # it is in the pauses
        commit_s=median(commits) if commits else assumed.commit_s,
        switch_s=_span(reads, assumed.switch_s),
    )
    observed = {"start": starts, "finish": finishes, "snapshot": paused, "commit": commits, "switch": reads}
    return MeasuredCosts(costs, {name: len(seen) for name, seen in observed.items()})


def _finishes(ended: Sequence[_Run]) -> list[float]:
    """What it took from the last step to the end, as far as it can be told from what snapshots took."""
    plain = [_beyond_s(run) for run in ended if not run.snapshots]
    if plain or len({run.snapshots for run in ended}) < 2:
        return plain
    line = linear_regression([run.snapshots for run in ended], [_beyond_s(run) for run in ended])
    return [min(max(0.0, line.intercept), *(_beyond_s(run) for run in ended))]


def _beyond_s(run: _Run) -> float:
    return run.lasted_beyond_s or 0.0


def _span(seen: Sequence[float], assumed: Span) -> Span:
    low, high = quantile(seen, LOW), quantile(seen, HIGH)
    return assumed if low is None or high is None else (max(0.0, low), max(0.0, high))


def _starts(facts: Iterable[Timed]) -> list[float]:
    sent: dict[tuple[str, int], float] = {}
    took = []
    for at_s, fact in facts:
        match fact:
            case f.JobDispatched(job=job, attempt=attempt):
                sent[job, attempt] = at_s
            case f.JobRunning(job=job, attempt=attempt) if (job, attempt) in sent:
                took.append(at_s - sent.pop((job, attempt)))
    return took


def _runs(facts: Iterable[Timed]) -> list[_Run]:
    steps: dict[str, float] = {}
    runs: dict[tuple[str, int], _Run] = {}
    for at_s, fact in facts:
        match fact:
            case f.JobSubmitted(job=job, step_s=step_s):
                steps[job] = step_s
            case f.JobRunning(job=job, attempt=attempt, step=step):
                runs.setdefault((job, attempt), _Run(at_s, step))
            case f.CheckpointTaken(job=job, attempt=attempt, final=False) if (job, attempt) in runs:
                runs[job, attempt].snapshots += 1
            case f.JobFinished(job=job, attempt=attempt, step=step) if (job, attempt) in runs:
                run = runs[job, attempt]
                run.lasted_beyond_s = max(0.0, at_s - run.since_s - (step - run.step) * steps[job])
    return list(runs.values())


def _beyond_bytes(facts: Iterable[Timed]) -> list[float]:
    """Of transfers whose grant never changed: what they took beyond their bytes at that rate."""
    grants: dict[tuple[str, str, str], list[float]] = {}
    beyond = []
    for _, fact in facts:
        match fact:
            case f.Granted(job, source, destination, _, rate_bytes_per_s):
                grants.setdefault((job, source, destination), []).append(rate_bytes_per_s)
            case f.GrantEnded(job, source, destination):
                grants.pop((job, source, destination), None)
            case f.TransferFinished(ok=True) as sent:
                match grants.get((sent.job, sent.source, sent.destination)):
                    case [rate] if rate > 0.0:
                        beyond.append(max(0.0, sent.duration_s - sent.bytes_sent / (rate * PACING_SHARE)))
    return beyond


def _reads(facts: Iterable[Timed], trace: Trace) -> list[float]:
    """How much shorter each notice was when it was read than when it was given."""
    given: dict[str, list[float]] = {}
    for event in trace.owner_events:
        if event.kind == "reclaim" and event.notice_s > 0.0:
            given.setdefault(event.host, []).append(event.notice_s)
    passed = []
    for _, fact in facts:
        match fact:
            case f.HostReclaimed(host=host, notice_s=left_s) if left_s > 0.0 and given.get(host):
                passed.append(max(0.0, given[host].pop(0) - left_s))
    return passed
