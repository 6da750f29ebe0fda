"""Traces drawn from a scenario: the same seed gives the same trace, whatever else has been drawn.

Every purpose has its own stream: arrival times, payloads, run times, ..., one for each host's owner. So adding a host
or changing the law of payloads leaves all other draws as they were. A scaled scenario gives the scaled trace.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import takewhile
from random import Random

from experiments.inputs.scenario import InverseLaw, Jobs, Owners, ResearchFlow, Scenario
from experiments.inputs.scenario.flow_sizes import quantile
from experiments.inputs.scenario.job import JobArrival, JobDraw
from experiments.inputs.scenario.owners import OwnerEvent
from experiments.inputs.traces.background import background_traffic
from experiments.inputs.traces.exact_counts import counted_events
from experiments.inputs.traces.streams import host_factor, stream, unit_exponential
from experiments.inputs.traces.trace import Recorded, Trace, in_order

MAX_OPEN = 256  # research flows of a stream at once: where a link is too full for them, further ones are cut
INITIAL_SPEED = 10.0  # the jobs that are there at the start come so much faster than the others


def generate(scenario: Scenario) -> Trace:
    """Return the jobs and owners of the scenario's `duration_s`, in its units.

    A real scenario gives real seconds and bytes.

    To play it, generate from `scenario.played()`, or apply `scenario.scale` to the trace; both give the same.
    """
    if scenario.owners.count is None:
        owners = Recorded(f"generated, seed {scenario.seed}", owner_events(scenario), _away(scenario))
    else:
        owners = counted_events(scenario)
    return Trace(owners.origin, arrivals(scenario), owners.events, owners.away, background_traffic(scenario))


def arrivals(scenario: Scenario) -> tuple[JobArrival, ...]:
    """Return the jobs that arrive before the run ends: the initial ones, then a renewal stream of the interarrival law.

    With `jobs.count`: exactly so many, at times that are uniform draws (a Poisson process, given its number). The
    scenario's own jobs are among them.
    """
    if scenario.jobs.count is not None:
        jobs, count = scenario.jobs, scenario.jobs.count
        drawn = counted_arrivals(jobs, count, scenario.seed, scenario.duration_s)
    else:
        specs = job_specs(scenario.jobs, scenario.seed)
        times = arrival_times(scenario.jobs, scenario.seed, scenario.duration_s)
        drawn = tuple(JobArrival(at_s, next(specs)) for at_s in times)
    return with_user_jobs(drawn, scenario)


def with_user_jobs(others: tuple[JobArrival, ...], scenario: Scenario) -> tuple[JobArrival, ...]:
    """Return the scenario's own jobs that arrive before the run ends, among others, in order of time."""
    own = [arrival for arrival in scenario.user_jobs if arrival.at_s < scenario.duration_s]
    return tuple(sorted([*others, *own], key=lambda arrival: arrival.at_s))


def arrival_times(jobs: Jobs, seed: int, until_s: float) -> Iterator[float]:
    """Yield arrival times of jobs, in seconds from the start."""
    rng = stream(seed, "arrivals")
    at_s, number = 0.0, 0
    while True:
        at_s += jobs.interarrival.quantile(rng.random()) / (INITIAL_SPEED if number < jobs.initial else 1.0)
        number += 1
        if at_s >= until_s:
            return
        yield at_s


def job_specs(jobs: Jobs, seed: int) -> Iterator[JobDraw]:
    """Yield jobs j1, j2, ...: each parameter from a stream of its own."""
    payloads, memories = draws(jobs.payload, seed, "payloads"), draws(jobs.memory, seed, "memories")
    runs, capabilities = draws(jobs.run_time, seed, "run times"), stream(seed, "capabilities")
    classes = stream(seed, "workload classes")
    number = 0
    while True:
        number += 1
        yield JobDraw(
            name=f"j{number}",
            payload_bytes=max(1, round(next(payloads))),
            steps=max(1, round(next(runs) / jobs.step_s)),
            step_s=jobs.step_s,
            dirty_fraction=jobs.dirty_fraction,
            memory_bytes=next(memories),
            min_capability=jobs.min_capabilities[int(capabilities.random() * len(jobs.min_capabilities))],
            loss_budget_s=jobs.loss_budget_s,
            workload_class=classes.choice(jobs.workload_classes) if jobs.workload_classes else None,
        )


def counted_arrivals(jobs: Jobs, count: int, seed: int, until_s: float) -> tuple[JobArrival, ...]:
    """Return exactly `count` jobs.

    Payloads and run times are stratified: one from each of `count` equal parts of the law, in random order, so that a
    short trace, too, has the law's median and spread. Run times add up to `work_s`, if that is given.
    """
    rng = stream(seed, "arrivals")
    times = sorted(rng.random() * until_s for _ in range(count))
    payloads = stratified(jobs.payload, count, stream(seed, "payloads"))
    runs = stratified(jobs.run_time, count, stream(seed, "run times"))
    stretch = jobs.work_s / sum(runs) if jobs.work_s and runs else 1.0
    specs = zip(times, job_specs(jobs, seed), payloads, runs, strict=False)
    return tuple(
        JobArrival(
            at_s, replace(spec, payload_bytes=max(1, round(payload)), steps=max(1, round(run * stretch / jobs.step_s)))
        )
        for at_s, spec, payload, run in specs
    )


def stratified(law: InverseLaw, count: int, rng: Random) -> list[float]:
    """Return a draw from each of `count` equally likely parts of a law, in random order."""
    values = [law.quantile((part + rng.random()) / count) for part in range(count)]
    rng.shuffle(values)
    return values


def draws(law: InverseLaw, seed: int, *purpose: str) -> Iterator[float]:
    """Yield independent draws of a law, for ever."""
    rng = stream(seed, *purpose)
    while True:
        yield law.quantile(rng.random())


def flow_arrivals(flow: ResearchFlow, number: int, seed: int) -> Iterator[tuple[float, int]]:
    """Yield (seconds since research began, payload bytes) of the flows of a scenario's research of a number: Poisson."""
    assert flow.sizes is not None
    rng, at_s, mean = stream(seed, "research", f"{number}"), 0.0, flow.mean_size_bytes or 0.0
    while True:
        at_s += unit_exponential(rng) * mean / flow.rate_bytes_per_s
        yield at_s, max(1, round(mean * quantile(flow.sizes, rng.random())))


def owner_events(scenario: Scenario) -> tuple[OwnerEvent, ...]:
    """Return the events of all owners: the script as it stands, nothing for loyal ones, the hazard for the others."""
    owners, until_s, week = scenario.owners, scenario.duration_s, scenario.protocol.week
    apart = {event.host for event in owners.script} | set(owners.loyal)
    events = list(owners.script)
    for host in scenario.volunteers:
        if host.name not in apart:
            lent = takewhile(lambda window: window[0] < until_s, week.windows_s(host.lent, 0.0))
            events += owner_life(owners, host.name, scenario.seed, until_s, lent)
    return in_order(events, until_s)


def _away(scenario: Scenario) -> tuple[str, ...]:
    """Return the hosts that their calendars have away at the start."""
    week, scripted = scenario.protocol.week, {event.host for event in scenario.owners.script}
    hosts = (host for host in scenario.volunteers if host.name not in scripted)
    return tuple(host.name for host in hosts if next(week.windows_s(host.lent, 0.0))[0] > 0.0)


def owner_life(
    owners: Owners, host: str, seed: int, until_s: float, windows: Iterable[tuple[float, float]] = ((0.0, math.inf),)
) -> Iterator[OwnerEvent]:
    """Yield a host's events: lent, reclaimed, away, lent again, until the run ends. The hazard runs only while it is lent.

    At the end of each window of its calendar its owner has it, who comes as at other times: with notice or without.
    """
    rng, factor = stream(seed, "owner", host), host_factor(owners, host, seed)
    for begin_s, end_s in windows:
        if begin_s > 0.0:
            yield OwnerEvent(begin_s, host, "return")
        lent_s = max(0.0, begin_s)
        while (at_s := owners.next_reclaim_s(lent_s, unit_exponential(rng) / factor)) < min(end_s, until_s):
            reclaim = reclaim_of(owners, host, at_s, rng.random(), rng.random())
            yield replace(reclaim, notice_s=min(reclaim.notice_s, end_s - at_s))
            lent_s = reclaim.gone_s + owners.absence.quantile(rng.random())
            if lent_s >= min(end_s, until_s):
                break
            yield OwnerEvent(lent_s, host, "return")
        if lent_s < end_s < math.inf:
            last = reclaim_of(owners, host, end_s, rng.random(), rng.random())
            at_s = max(lent_s, end_s - last.notice_s)
            yield replace(last, at_s=at_s, notice_s=end_s - at_s)


def announced(trace: Trace, played: Scenario) -> tuple[OwnerEvent, ...]:
    """Return the owners' events with the ends of calendars' windows announced `calendar_notice` before, as scaled as both."""
    week, notice_s, lent_s = played.protocol.week, played.protocol.calendar_notice_s, dict[str, float]()
    slack_s, events = 1e-6 * week.day_s, list[OwnerEvent]()
    for event in trace.owner_events:
        if event.kind == "return":
            lent_s[event.host] = event.at_s
        elif (
            abs(week.end_s(played.campus.host_by_name[event.host].lent, event.at_s - slack_s) - event.gone_s) < slack_s
        ):
            at_s = max(lent_s.get(event.host, 0.0), min(event.at_s, event.gone_s - notice_s))
            event = OwnerEvent(at_s, event.host, "reclaim", event.gone_s - at_s)
        events.append(event)
    return in_order(events, math.inf)


def reclaim_of(owners: Owners, host: str, at_s: float, draw_kind: float, draw_notice: float) -> OwnerEvent:
    """Return a reclaim of the law of notices: an emergency, one with a short grace, or planned (F1 of paper A)."""
    if draw_kind >= owners.emergency_share:
        return OwnerEvent(at_s, host, "reclaim", owners.notice.quantile(draw_notice))
    if draw_kind < owners.emergency_share * owners.grace_share:
        return OwnerEvent(at_s, host, "reclaim", owners.grace_s, grace=True)
    return OwnerEvent(at_s, host)
