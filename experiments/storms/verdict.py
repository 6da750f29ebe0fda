"""The judgement of a storm that is over: nothing is left of any job, promises hold, and migrations were in time.

An admitted migration is judged unless a fault acted on it that no admission could foresee. Faults count between its
notice and its end (or its deadline, if that is sooner): on its two hosts, on a link of its way, on its job, or on the
coordinator. A fault elsewhere, before or after excuses nothing. Each that is not judged is counted by the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from experiments.results.history import Notice, notices, only
from experiments.results.rules import IN_SHARE, IN_TIME, RESERVED, Broken, not_promised
from experiments.results.rules import broken as broken_promises
from experiments.results.rules.admissions import KINDS, excuse
from experiments.results.run_context import ResearchSample, RunContext, migration_shares
from experiments.storms.world import StormWorld
from experiments.worlds.virtual.invariants import broken
from experiments.worlds.virtual.world import VirtualWorld
from testbed.enforcement import Enforcement
from topologies.scale import Scale

JUDGED = "judged"
NAME = re.compile(r" [a-z]+[0-9]+\b")  # of a host: causes are counted without it


def check_nothing_is_left(world: StormWorld) -> None:
    """Check a world in which all jobs are over and every agent is connected: a small leak fills a campus in a month.

    InvariantBroken: something is left of a job in the coordinator's books, on the hosts, or on the links.
    """
    known = world.coordinator.cluster
    left = [(flow.job, f"the book has a flow {key}") for key, flow in known.flows.items()]
    left += [(job, f"{host.name} holds a GPU for it") for host in known.hosts.values() for job in host.jobs]
    for machine in world.machines.values():
        name, core = machine.name, machine.core
        left += [(job, f"it computes on {name}") for job, _ in machine.processes]
        left += [(job, f"{name} sends a checkpoint of it") for job, _ in machine.transfers]
        if core is not None:
            there = [*core.running, *(job for job, _ in core.sends.table), *core.ended]
            left += [(job, f"the agent of {name} still has it in a table") for job in there]
            expected = core.announced.values()
            left += [(each.job, f"{name} still expects a checkpoint of it") for each in expected]
            kept = [*machine.store, *core.stored]
            left += [(job, f"{name} keeps checkpoint {sequence} of it") for job, sequence in kept]
    for job, rule in left:
        raise broken(world, job, f"all is over, and {rule}")


# ---------------------------------------------------------------- promises


def promises(world: StormWorld) -> list[Broken]:
    """Judge the journal by the rules of a run, but for admissions, of which a journal has only some faults."""
    waived = not_promised(world.policy)
    waived[IN_TIME] = "a journal tells only of some faults"
    if world.protocol.enforcement == Enforcement.NONE:
        waived[RESERVED] = "nothing holds its senders to a share of a link"
        waived[IN_SHARE] = "nothing holds its senders to a share of a link"
    context = replace(context_of(world, waived), research=_undisturbed(world))
    return broken_promises(world.facts, context)


def context_of(world: VirtualWorld, waived: Mapping[str, str]) -> RunContext:
    """Return the context of a world that plays no scenario, in its own time; `waived`: rules not judged there, and why."""
    return RunContext(
        0,
        Scale(),
        world.env.campus,
        migration_shares(world.env.campus, keeps_reserve=world.policy.enforced),
        world.terms.on_demand_cost,
        world.terms.target_delay_s,
        world="storm",
        ended_at_s=world.now_s,
        keeps_reserve=world.policy.enforced,
        borrows=world.policy.borrows,
        not_promised=waived,
    )


def _undisturbed(world: StormWorld) -> list[ResearchSample]:
    """Return what research got in windows with no slow cable, with what senders took that had not yet read a lower grant.

    A sender whose agent stands still, or whose orders are late, sends at its rates of before, and another has its share already.
    """
    samples: list[ResearchSample] = []
    for sample in world.research.samples:
        links, from_s = frozenset(sample.way), sample.at_s - sample.window_s
        if any(
            fault.links and fault.acts_on("", frozenset(), links, from_s, sample.at_s) for fault in world.disturbances
        ):
            continue
        taken = dict.fromkeys(links, 0.0)
        for excess in world.judges.invariants.ground_truth.excesses:
            overlap_s = min(excess.until_s, sample.at_s) - max(excess.from_s, from_s)
            if overlap_s > 0.0:
                for link in links & excess.bytes_per_s.keys():
                    taken[link] += excess.bytes_per_s[link] * overlap_s
        # of all research that crosses the link in this window, each has lost its part
        crossing = [s for s in world.research.samples if s.at_s == sample.at_s]
        parts = [taken[link] / sum(link in s.way for s in crossing) for link in links]
        lost = max(parts, default=0.0)
        samples.append(replace(sample, payload_bytes=sample.payload_bytes + lost))
    return samples


# ---------------------------------------------------------------- migrations


def check_admissions(world: StormWorld) -> None:
    """Count each admission in `world.counts`, as judged or by its excuse. InvariantBroken: one that is judged was late."""
    late: list[Notice] = []
    for notice, cause in excused_admissions(world):
        world.counts[f"admission: {NAME.sub('', cause) or JUDGED}"] += 1
        if not cause and not notice.in_time:
            late.append(notice)
    for notice in late:
        when = "never ran on" if notice.finished_s is None else f"ran on {-(notice.margin_s or 0.0):.3f} s late"
        rule = (
            f"promise: {IN_TIME}: from {notice.source} to {notice.destination} with {notice.notice_s:.3f} s, it {when}"
        )
        raise broken(world, notice.job, rule)


def excused_admissions(world: StormWorld) -> Iterator[tuple[Notice, str]]:
    """Yield each admitted migration, and its excuse ("" if it is judged). The run is over, so every deadline has passed."""
    row = not_promised(world.policy).get(IN_TIME)
    recorded = list(only(world.facts, KINDS))
    for notice in notices(world.facts):
        if notice.admitted_s is None or notice.destination is None:
            continue
        if row is not None:
            yield notice, "the row of the policies promises no rate"
        elif world.protocol.enforcement != Enforcement.PACE:
            yield notice, "senders do not get the rates that they are granted"
        else:
            over_s = min(notice.deadline_s, notice.finished_s or notice.deadline_s)
            until_over = replace(notice, notice_s=over_s - notice.at_s)
            yield notice, _fault(world, until_over) or excuse(until_over, recorded) or ""


def _fault(world: StormWorld, notice: Notice) -> str:
    """Return the first fault that acted on a migration and that no fact records; "" if none did."""
    assert notice.destination is not None
    ends = frozenset((notice.source, notice.destination))
    way = world.ways.links_of(notice.source, notice.destination, notice.at_s, notice.deadline_s)
    acted = (
        fault.cause
        for fault in world.disturbances
        if fault.acts_on(notice.job, ends, way, notice.at_s, notice.deadline_s)
    )
    return next(acted, "")
