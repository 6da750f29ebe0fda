"""Fault storms over `cores_world`: everything that may go wrong does, for a while; then owners return, and all must finish."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from math import inf

from experiments.history import notices
from testbed.messages import JobSpec
from tests.cores_world import SETTINGS, CoresWorld, small_campus

IN_TIME = "an admitted migration is in time"
STORM_S = 30.0
CALM_S = 240.0
MOST_EVENTS = 60_000
KINDS = ("kill", "pause", "cut", "now", "notice", "notice", "flap", "back", "all", "again")


def storm(seed: int, policy: str = SETTINGS.policy, *, quiet: bool = False) -> CoresWorld:
    """Run one; raises InvariantBroken. Every quantity comes from the seed."""
    rng = random.Random(f"storm {seed}")
    settings = replace(
        SETTINGS,
        spare_gpus=rng.choice([0, 0, 0, 1]),
        level_start=rng.choice([0.5, 1.0, 3.0]),
        offer_ttl_s=rng.choice([inf, inf, 4.0]),
        policy=policy,
    )
    failing = rng.random() < 0.5
    world = CoresWorld(
        small_campus(rng.choice([3, 5, 7]), rng.choice([0, 1, 2])),
        settings,
        seed,
        send_failures=0.15 if failing else 0.0,
        snapshot_failures=0.1 if failing else 0.0,
        workload_failures=0.05 if rng.random() < 0.3 else 0.0,
        quiet=quiet,
    )
    _plan_arrivals(world, rng)
    for _ in range(rng.choice([6, 20, 60])):
        _plan_fault(world, rng)
    world.run(STORM_S)
    calm_and_finish(world)
    return world


def _plan_arrivals(world: CoresWorld, rng: random.Random) -> None:
    late = rng.random() < 0.2
    for name in world.machines:
        world.at(rng.uniform(0.0, 8.0 if late else 0.5), partial(world.start, name))
    for number in range(rng.randint(3, 12)):
        spec = JobSpec(
            f"j{number}",
            rng.randint(5, 120),
            0.1,
            rng.choice([100_000, 2_000_000, 8_000_000, 30_000_000]),
            loss_budget_s=rng.choice([3.0, 10.0, 900.0]),
            memory_bytes=rng.choice([0.0, 0.0, 30e9]) if len(world.machines) > 5 else 0.0,
        )
        world.at(rng.uniform(0.0, 20.0), partial(world.submit, spec, rng.random()))


def _plan_fault(world: CoresWorld, rng: random.Random) -> None:
    owners = [name for name in world.machines if not name.startswith("od")]
    at_s, name, owned = rng.uniform(0.5, STORM_S), rng.choice(list(world.machines)), rng.choice(owners)
    match rng.choice(KINDS):
        case "kill":
            world.at(at_s, partial(world.kill, name, rng.choice([0.004, 0.5, 5.0])))
            world.at(at_s + rng.choice([0.01, 0.3, 2.0, 6.0]), partial(world.start, name))
        case "pause":
            world.at(at_s, partial(world.pause, name, rng.choice([0.1, 1.0, 1.9, 2.1, 5.0])))
        case "cut":
            late = [0.0, 0.1, 1.0, 4.0]
            world.at(at_s, partial(world.cut, name, rng.choice(late), rng.choice(late)))
        case "now":
            world.at(at_s, partial(world.reclaim, owned))
            world.at(at_s + rng.uniform(0.05, 8.0), partial(world.give_back, owned))
        case "notice":
            notice_s, grace = rng.choice([0.3, 1.0, 3.0, 8.0]), rng.random() < 0.5
            world.at(at_s, partial(world.reclaim, owned, notice_s, grace=grace))
            world.at(at_s + notice_s + rng.uniform(-0.5, 6.0), partial(world.give_back, owned))
        case "flap":
            for turn in range(rng.randint(2, 5)):
                begin_s = at_s + 0.4 * turn
                world.at(begin_s, partial(world.reclaim, owned, rng.choice([0.0, 0.2, 3.0])))
                world.at(begin_s + rng.uniform(0.0, 0.4), partial(world.give_back, owned))
        case "back":
            world.at(at_s, partial(world.give_back, owned))
        case "all":
            for each in owners:
                world.at(at_s + rng.uniform(0.0, 0.3), partial(world.reclaim, each, rng.choice([0.0, 2.0])))
                world.at(at_s + rng.uniform(3.0, 6.0), partial(world.give_back, each))
        case "again":
            world.at(at_s, partial(world.reclaim, owned, rng.choice([1.0, 4.0])))
            world.at(at_s + 0.5, partial(world.reclaim, owned, rng.choice([0.0, 0.3, 5.0])))


def calm_and_finish(world: CoresWorld) -> None:
    """No more faults, owners return, agents run: every job finishes, within bounds, and all promises were kept."""
    world.run(world.now_s + 10.0)  # what was planned with a delay
    world.send_failures = world.snapshot_failures = world.workload_failures = 0.0
    for name in world.machines:
        world.start(name)
        world.give_back(name)
    limit_s = world.now_s + CALM_S
    while not world.over() and world.now_s < limit_s:
        if world.settings.offer_ttl_s < inf:
            _offer_again(world)
        world.run(world.now_s + 5.0)
    if not world.over():
        left = {j.name: (j.phase.value, j.host) for j in world.coordinator.world.unfinished()}
        raise world.broken("liveness", f"not over {CALM_S:.0f} s after the last fault: {left}")
    if world.events > MOST_EVENTS:
        raise world.broken("the world", f"{world.events} events, at most {MOST_EVENTS} are sensible")
    for breach in world.promises():
        if breach.rule == IN_TIME and _stood_still(world, breach.subject):
            continue
        story = "\n  ".join(breach.story)
        raise world.broken(breach.subject, f"promise: {breach.rule}: {breach.story[-1]}\n  {story}\n")


def _offer_again(world: CoresWorld) -> None:
    """Spot offers that lapsed come back with an owner's next return only (paper B)."""
    for host in world.coordinator.world.hosts.values():
        if host.is_volunteer and not host.jobs:
            world.reclaim(host.name)
            world.after(0.3, partial(world.give_back, host.name))


def _stood_still(world: CoresWorld, job: str) -> bool:
    """Whether a process at either end of one of the job's moves was stopped during the notice: no journal tells that."""
    return any(
        name in (notice.source, notice.destination)
        and at_s < notice.deadline_s
        and at_s + for_s > notice.at_s
        for notice in notices(world.facts)
        if notice.job == job
        for at_s, name, for_s in world.pauses
    )
