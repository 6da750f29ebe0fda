"""Small windows for an oracle, and judges of its plans that share no code with it."""

import itertools
import random
from collections.abc import Iterator, Sequence
from math import inf

from controller.core.network.links import migration_share
from experiments.worlds.oracle.choices import Choices
from experiments.worlds.oracle.future import ClassBudgets, Future, LinkBudgets, Stay
from experiments.worlds.oracle.problem import Handover, RunningJob, WindowProblem
from experiments.worlds.oracle.transfer_times import TransferTimes
from testbed.messages import JobSpec
from topologies.paths import Routes
from topologies.presets import three_tier
from topologies.spec import DirectedLink, Role

HORIZON_S = 10_000.0


def window(seed: int, *, hosts: int = 4, jobs: int = 3, targets_apart_s: float = 400.0) -> WindowProblem:
    """Hosts of one GPU whose stays end near each other (some with notice), others that stay; jobs on those that end.

    With an odd seed checkpoints may have twice as much of links as migrations.
    """
    rng = random.Random(seed)
    campus = three_tier(hosts=hosts, buildings=2)
    names = [host.name for host in campus.hosts_of(Role.VOLUNTEER)]
    stays = {name: (_stay(rng, name, ends=rng.random() < 0.6, apart_s=targets_apart_s),) for name in names}
    stays[names[-1]] = (Stay(names[-1], 0.0, inf, inf),)
    gpus = {host.name: host.gpus for host in campus.hosts if host.gpus}
    share = migration_share(campus.capacity_bytes_per_s, campus.research_reserve)
    budgets = ClassBudgets(migrations := LinkBudgets([share]), migrations)
    if seed % 2:
        budgets = ClassBudgets(migrations, LinkBudgets([{link: 2.0 * rate for link, rate in share.items()}]))
    transfer_times = TransferTimes(Routes(campus), budgets, 0.2, 10.0, lambda _: 0.15)
    choices = Choices(campus, Future(stays), transfer_times, 0.0, HORIZON_S)
    slots = [name for name in names for _ in range(gpus[name])]
    seats = rng.sample(slots, min(jobs, len(slots)))
    runners = [_runner(rng, f"j{n}", stays[seat][0]) for n, seat in enumerate(seats)]
    return choices.problem(runners)


def _stay(rng: random.Random, host: str, *, ends: bool, apart_s: float) -> Stay:
    if not ends:
        return Stay(host, 0.0, inf, inf)
    until_s = 2000.0 + apart_s * rng.random()
    return Stay(host, 0.0, until_s - rng.choice((0.0, 0.0, 20.0, 90.0)), until_s)


def _runner(rng: random.Random, name: str, stay: Stay) -> RunningJob:
    payload, dirty = rng.uniform(0.5e9, 9e9), rng.choice((0.3, 0.01))
    spec = JobSpec(name, 800, 10.0, round(payload), params={"dirty_fraction": dirty}, memory_bytes=1e9)
    return RunningJob(spec, 0.0, 8000.0, stay)


def ways(problem: WindowProblem) -> Iterator[tuple[Handover, ...]]:
    """Every combination of complete ways of all jobs, whether or not it is feasible."""
    return (tuple(itertools.chain(*some)) for some in itertools.product(*_ways_of_each(problem)))


def _ways_of_each(problem: WindowProblem) -> list[list[tuple[Handover, ...]]]:
    out: dict[tuple[str, Stay], list[Handover]] = {}
    for handover in problem.handovers:
        out.setdefault((handover.job, handover.stay), []).append(handover)

    def on(job: str, stay: Stay | None) -> Iterator[tuple[Handover, ...]]:
        if stay is None or (job, stay) not in problem.nodes:
            yield ()
            return
        for handover in out[job, stay]:
            for rest in on(job, handover.to):
                yield (handover, *rest)

    return [list(on(runner.name, runner.stay)) for runner in problem.runners]


def brute_force(problem: WindowProblem) -> float:
    """The least cost of any feasible combination, by looking at all that could be less than the best so far."""
    each = [sorted(some, key=_cost) for some in _ways_of_each(problem)]
    least_after = [sum(_cost(some[0]) for some in each[n:]) for n in range(len(each) + 1)]
    best = inf

    def go(number: int, chosen: tuple[Handover, ...], cost: float) -> None:
        nonlocal best
        if cost + least_after[number] >= best or faults(problem, chosen, complete=False):
            return
        if number == len(each):
            best = cost
            return
        for way in each[number]:
            go(number + 1, (*chosen, *way), cost + _cost(way))

    go(0, (), 0.0)
    return best


def _cost(way: Sequence[Handover]) -> float:
    return sum(choice.cost_s for choice in way)


def faults(problem: WindowProblem, chosen: Sequence[Handover], *, complete: bool = True) -> list[str]:
    """What is wrong with a plan: links or GPUs beyond what they have at any moment, jobs that get lost on their way."""
    found = [*_links_over(problem, chosen), *_gpus_over(problem, chosen)]
    return [*found, *_lost_ways(problem, chosen)] if complete else found


def _links_over(problem: WindowProblem, chosen: Sequence[Handover]) -> Iterator[str]:
    taken = [r for c in chosen for r in c.bookings]
    taken += problem.bookings
    moments = sorted({t for r in taken for t in (r.from_s, r.until_s)})
    for early, late in itertools.pairwise(moments):
        at_s = (early + late) / 2.0
        for what, budgets in (("all", problem.budgets.together), ("migrations", problem.budgets.migrations)):
            load: dict[DirectedLink, float] = {}
            for booking in taken:
                if booking.from_s < at_s < booking.until_s and (what == "all" or booking.migrates):
                    for link in booking.links:
                        load[link] = load.get(link, 0.0) + booking.rate_bytes_per_s
            for link, rate in load.items():
                if rate > budgets.path((link,), at_s) * (1.0 + 1e-6):
                    yield f"{what} take {rate:g} of {link} at {at_s:g} s"


def _gpus_over(problem: WindowProblem, chosen: Sequence[Handover]) -> Iterator[str]:
    ends_s = {runner.name: runner.finish_s for runner in problem.runners}
    taken = [(c.to.host, c.leaves_s, min(ends_s[c.job], c.to.until_s)) for c in chosen if c.to is not None]
    taken += [(r.stay.host, r.since_s, min(r.finish_s, r.stay.until_s)) for r in problem.runners]
    for _, at_s, _ in taken:
        for host, gpus in problem.gpus.items():
            there = sum(where == host and begin <= at_s < end for where, begin, end in taken)
            if there > gpus:
                yield f"{host} has {there} jobs on {gpus} GPUs at {at_s:g} s"


def _lost_ways(problem: WindowProblem, chosen: Sequence[Handover]) -> Iterator[str]:
    out, used = {(c.job, c.stay): c for c in chosen}, 0
    for runner in problem.runners:
        stay: Stay | None = runner.stay
        while stay is not None and (runner.name, stay) in problem.nodes:
            way = out.get((runner.name, stay))
            if way is None:
                yield f"{runner.name} stays on {stay.host}, which closes"
                break
            used, stay = used + 1, way.to
    if used != len(chosen):
        yield f"{len(chosen)} choices, {used} of them on somebody's way"
