"""A virtual run: a scenario and a trace through the virtual world, with a result like a live run's journal."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict, Unpack

from controller.user_policies import find_policy
from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import Trace, announced
from experiments.results.run_context import CheckpointPrice, FidelityRecord
from experiments.worlds.played import Played, agents_registered_s, context_of
from experiments.worlds.virtual.background import BackgroundAccount, VirtualBackground
from experiments.worlds.virtual.faults import Faults
from experiments.worlds.virtual.overheads import Overheads
from experiments.worlds.virtual.scheduler import Priority
from experiments.worlds.virtual.world import VirtualWorld
from testbed.errors import SpecError
from testbed.messages import Rejected
from topologies.scale import Scale

WORLD = "virtual"
PARTS = 100  # of the time, for a bar
PLAYED = {"rate_bytes_per_s", "up"}  # of what events of links change
BEGIN_S = 0.5  # the trace begins once all agents have registered
# made and kept since the garbage collector last looked: its own 700 make it look through all facts of two months again and again
YOUNG_OBJECTS = 50_000
LATEST_FACTOR = 4.0  # with `until_over`: a run is given up after so many times its duration


@dataclass(frozen=True)
class VirtualRun(Played):
    """A run in virtual time."""

    events: int  # that the scheduler had
    background: BackgroundAccount | None = None  # what became of the trace's background traffic


class WorldOptions(TypedDict, total=False):
    """Options of playing a scenario; all may be left out."""

    costs: Overheads | None  # what the machinery takes; by default within what P3 reserves
    faults: Faults | None  # what goes wrong by itself; by default nothing
    quiet: bool  # leaves out heartbeats that can change nothing; by default it does
    after_each: Callable[[VirtualWorld], None] | None  # called after each event


def simulate(
    scenario: Scenario,
    trace: Trace,
    seed: int | None = None,
    *,
    system: str | None = None,
    plan: Callable[[VirtualWorld], None] | None = None,
    until_over: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[WorldOptions],
) -> VirtualRun:
    """Play a scenario and a trace (both in real units, like `run_live`) in virtual time.

    `seed` (default: the scenario's) is that of the world and the coordinator; jobs and owners are the trace's. `system` is a row
    of `controller.core.policies`, by default the scenario's. `plan` is called with the world before it begins, to put on its heap
    what is to be done to it. `until_over` goes on after the trace's end until every job is over. SpecError: no such system, or
    the coordinator never takes a job of the trace.
    """
    world = make_world(scenario, trace, seed, system=system, **options)
    if plan is not None:
        plan(world)
    end_s = BEGIN_S + scenario.played().duration_s
    gc.freeze()  # what is there already is not looked through again and again for cycles
    often = gc.get_threshold()
    gc.set_threshold(max(often[0], YOUNG_OBJECTS), *often[1:])
    try:
        for part in range(1, PARTS + 1 if progress else 1):
            world.run(end_s * part / (PARTS + 1))
            progress(part, PARTS)  # type: ignore[misc]
        world.run(end_s)
        while until_over and not world.over() and world.now_s < end_s * LATEST_FACTOR:
            world.run(min(end_s * LATEST_FACTOR, world.now_s + world.protocol.day_s / 24.0))
        world.finish()
    finally:
        gc.set_threshold(*often)
        gc.unfreeze()
    context = context_of(scenario, trace, world.policy)
    registered_s = agents_registered_s(world.facts)
    context = replace(
        context,
        seed=context.seed if seed is None else seed,
        world=WORLD,
        policy=world.protocol.policy,
        research=tuple(world.research.samples),
        completions=tuple(world.research.completions),
        fidelity=FidelityRecord(figures={"events": float(world.events), "agents_registered_s": registered_s}),
        ended_at_s=world.now_s,
        prices={} if context.reclaims is None else _prices(scenario.scale.apply(trace), world),
    )
    account = None if world.background is None else world.background.account()
    return VirtualRun(world.facts, context, world.events, account)


def make_world(
    scenario: Scenario,
    trace: Trace,
    seed: int | None = None,
    *,
    system: str | None = None,
    kind: type[VirtualWorld] = VirtualWorld,
    **options: Unpack[WorldOptions],
) -> VirtualWorld:
    """Return the world at its beginning, with agents and trace on its heap; arguments as of `simulate`, and a class of world."""
    if system is not None:
        scenario = replace(scenario, protocol=replace(scenario.protocol, policy=system))
    find_policy(scenario.protocol.policy)  # a scenario that came from another process brings only the name
    played, events = scenario.played(), scenario.scale.apply(trace)
    chosen = played.seed if seed is None else seed
    world = kind(
        played.campus,
        played.protocol,
        played.queue,
        chosen,
        duration_s=played.duration_s,
        research=played.research,
        **options,
    )
    if events.background is not None:
        world.background = VirtualBackground(world.env, world.connections, events.background)
    for name in events.away:
        world.machines[name].closed = True
    for name in world.machines:
        boot_s = world.env.streams.span(world.env.costs.boot_s, "boot", name)
        world.at(boot_s, partial(world.start, name), Priority.PROCESS)
    world.at(BEGIN_S, world.research.begin, Priority.OWNER)
    if world.background is not None:
        world.at(BEGIN_S, world.background.begin, Priority.OWNER)
    world.on_rejected = partial(_raise_rejected, scenario.scale)
    admission = random.Random(f"{chosen} admission")
    for arrival in events.arrivals:
        submit = partial(world.submit, arrival.job.spec(), admission.random())
        world.at(BEGIN_S + arrival.at_s, submit, Priority.MESSAGE)
    for change in played.events:
        if only_live := sorted(change.changes.keys() - PLAYED):
            allowed = "rate and up: the virtual world's links have no queue that could hold or lose a packet"
            keys = ", ".join(name.removesuffix("_s") for name in only_live)
            raise SpecError(f"events.{keys}", f"of {'-'.join(change.between)}", allowed)
        alter = partial(world.links.change, *change.between, rate_bytes_per_s=change.rate_bytes_per_s, up=change.up)
        world.at(BEGIN_S + change.at_s, alter, Priority.OWNER)
        if change.drain_s is not None:
            drain = partial(world.links.drain, *change.between)
            world.at(BEGIN_S + change.at_s - change.drain_s, drain, Priority.OWNER)
    for event in announced(events, played) if world.policy.weighs_calendars else events.owner_events:
        acts = (
            partial(world.give_back, event.host)
            if event.kind == "return"
            else partial(world.reclaim, event.host, event.notice_s, grace=event.grace)
        )
        world.at(BEGIN_S + event.at_s, acts, Priority.OWNER)
    return world


def _prices(events: Trace, world: VirtualWorld) -> dict[str, CheckpointPrice]:
    """Return the least cost of checkpoints of each of the trace's jobs; none for a system that computes jobs twice instead."""
    if world.policy.interruption.replication is not None:
        return {}
    costs = world.env.costs
    pause_s, rate = (
        (costs.snapshot_s[0], costs.snapshot_bytes_per_s)
        if costs.snapshot_pause_s is None
        else (costs.snapshot_pause_s[0], costs.snapshot_pause_bytes_per_s)
    )
    return {
        job.name: CheckpointPrice(
            float(job.payload_bytes),
            job.dirty_fraction,
            job.step_s,
            job.loss_budget_s,
            pause_s + job.payload_bytes / rate,
        )
        for job in (arrival.job for arrival in events.arrivals)
    }


def _raise_rejected(scale: Scale, answer: Rejected) -> None:
    """Raise SpecError: results would miss a job that could never run."""
    played = "" if scale == Scale() else ", at the scenario's scale"
    raise SpecError("job", answer.job, f"one that this campus can run: {answer.reason}{played}")
