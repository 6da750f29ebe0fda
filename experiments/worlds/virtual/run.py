"""One virtual run: a scenario and a trace through the virtual world, and what it was, in the form of a live run's journal."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from controller.core.model.facts import AnyFact, HostJoined
from controller.core.policies.table import policy
from experiments.inputs.job_specs import job_spec
from experiments.inputs.scenario import OwnerEvent, Scenario
from experiments.inputs.scenario.settings import settings_of
from experiments.inputs.traces import Trace
from experiments.results.accounting import summarise
from experiments.results.promises import not_promised
from experiments.results.run_context import FidelityRecord, RunContext, migration_shares
from experiments.results.summary import Summary
from experiments.worlds.virtual.background import BackgroundAccount, VirtualBackground
from experiments.worlds.virtual.faults import Faults
from experiments.worlds.virtual.overheads import Overheads
from experiments.worlds.virtual.scheduler import Priority
from experiments.worlds.virtual.world import VirtualWorld
from testbed.enforcement import Enforcement

WORLD = "virtual"
BEGIN_S = 0.5  # the trace begins once all agents have registered
LATEST_FACTOR = 4.0  # with `until_over`: a run is given up after so many times its duration


@dataclass(frozen=True)
class VirtualRun:
    """What a run was: its facts, (seconds, fact) in the journal's order, its context, how many events it took, and what became
    of the trace's background traffic."""

    facts: list[tuple[float, AnyFact]]
    context: RunContext
    events: int
    background: BackgroundAccount | None = None

    def summary(self) -> Summary:
        """The figures, with every promise checked."""
        return summarise(self.facts, self.context)


def simulate(
    scenario: Scenario,
    trace: Trace,
    seed: int | None = None,
    *,
    system: str | None = None,
    costs: Overheads | None = None,
    faults: Faults | None = None,
    quiet: bool = True,
    until_over: bool = False,
    after_each: Callable[[VirtualWorld], None] | None = None,
) -> VirtualRun:
    """Play a scenario and a trace (both in real units, like `run_live`) in virtual time.

    `seed` (default: the scenario's) is that of the world and the coordinator; jobs and owners are the trace's. `system` is a row
    of `controller.core.policies`, by default the scenario's. `quiet` leaves out heartbeats and ticks that can change nothing
    (see `pulse`, `patience`). `until_over` goes on after the trace's end until every job is over. SpecError: no such system.
    """
    world = make_world(
        scenario, trace, seed, system=system, costs=costs, faults=faults, quiet=quiet, after_each=after_each
    )
    gc.freeze()  # what is there already is not looked through again and again for cycles
    try:
        _play(world, BEGIN_S + scenario.played().duration_s, until_over)
    finally:
        gc.unfreeze()
    return VirtualRun(
        world.facts,
        _context(scenario, trace, scenario.seed if seed is None else seed, world),
        world.events,
        None if world.background is None else world.background.account(),
    )


def _play(world: VirtualWorld, end_s: float, until_over: bool) -> None:
    world.run(end_s)
    if until_over:
        limit_s = end_s * LATEST_FACTOR
        while not world.over() and world.now_s < limit_s:
            world.run(min(limit_s, world.now_s + world.settings.day_s / 24.0))
    world.finish()


def make_world(
    scenario: Scenario,
    trace: Trace,
    seed: int | None = None,
    *,
    system: str | None = None,
    costs: Overheads | None = None,
    faults: Faults | None = None,
    quiet: bool = True,
    after_each: Callable[[VirtualWorld], None] | None = None,
    kind: type[VirtualWorld] = VirtualWorld,
) -> VirtualWorld:
    """The world at its beginning, with the trace on its heap; arguments as of `simulate`, and another kind of world."""
    if system is not None:
        policy(system)
        scenario = replace(scenario, protocol=replace(scenario.protocol, policy=system))
    played, events = scenario.played(), scenario.scale.apply(trace)
    chosen = played.seed if seed is None else seed
    world = kind(
        played.campus,
        settings_of(played),
        chosen,
        duration_s=played.duration_s,
        costs=costs,
        faults=faults,
        enforcement=Enforcement(played.protocol.enforcement),
        research=played.research,
        quiet=quiet,
        after_each=after_each,
    )
    _put_on_heap(world, events, chosen)
    return world


def _put_on_heap(world: VirtualWorld, trace: Trace, seed: int) -> None:
    """Agents boot, jobs arrive, owners come and go."""
    if trace.background is not None:
        world.background = VirtualBackground(world.stage, world.connections, trace.background)
    for name in trace.away:
        world.machines[name].closed = True
    for name in world.machines:
        boot_s = world.stage.streams.span(world.stage.costs.boot_s, "boot", name)
        world.at(boot_s, partial(world.start, name), Priority.PROCESS)
    world.at(BEGIN_S, world.research.begin, Priority.OWNER)
    if world.background is not None:
        world.at(BEGIN_S, world.background.begin, Priority.OWNER)
    admission = random.Random(f"{seed} admission")
    for arrival in trace.arrivals:
        submit = partial(world.submit, job_spec(arrival), admission.random())
        world.at(BEGIN_S + arrival.at_s, submit, Priority.MESSAGE)
    for event in trace.owner_events:
        world.at(BEGIN_S + event.at_s, partial(_owner_acts, world, event), Priority.OWNER)


def _owner_acts(world: VirtualWorld, event: OwnerEvent) -> None:
    if event.kind == "return":
        world.give_back(event.host)
    else:
        world.reclaim(event.host, event.notice_s, grace=event.grace)


def _context(scenario: Scenario, trace: Trace, seed: int, world: VirtualWorld) -> RunContext:
    campus, queue = world.stage.campus, scenario.played().queue
    row = policy(world.settings.policy)
    return RunContext(
        seed=seed,
        scale=scenario.scale,
        campus=campus,
        share=migration_shares(campus, keeps_reserve=row.enforced),
        not_promised=not_promised(row),
        on_demand_cost=queue.on_demand_cost,
        level_max=queue.level_max,
        target_delay_s=queue.target_delay_s,
        world=WORLD,
        research=tuple(world.research.samples),
        fidelity=FidelityRecord(
            figures={"events": float(world.events), "agents_registered_s": _registered_s(world)}
        ),
        ended_at_s=world.now_s,
        warnings=trace.warnings,
    )


def _registered_s(world: VirtualWorld) -> float:
    """When the last agent had registered for the first time."""
    first: dict[str, float] = {}
    for at_s, fact in world.facts:
        if isinstance(fact, HostJoined):
            first.setdefault(fact.host, at_s)
            if len(first) == len(world.machines):
                break
    return max(first.values(), default=0.0)
