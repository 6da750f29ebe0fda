"""Play of a script: the storm, then calm weather in which everything must come to its end; breaches are reported.

In the calm, faults and others' traffic are over, owners return, agents run. Then every job finishes within `CALM_S`,
nothing of any job is left on a host or in the books, and the promises hold over the whole journal; `admissions` judges
the migrations that had to be in time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

from experiments.results.history import Timed
from experiments.results.rules import (
    IN_SHARE,
    IN_TIME,
    REPORTED,
    RESERVED,
    RULES,
    Broken,
    not_promised,
)
from experiments.results.rules import broken as broken_promises
from experiments.results.run_context import ResearchSample, RunContext, migration_shares
from experiments.storms.admissions import check_admissions
from experiments.storms.commands import check, perform
from experiments.storms.leftovers import check_nothing_is_left
from experiments.storms.script import Script
from experiments.storms.setup import ground_of
from experiments.storms.world import StormWorld
from experiments.worlds.virtual.invariants import broken
from experiments.worlds.virtual.scheduler import WorldStuck
from experiments.worlds.virtual.world import VirtualWorld
from testbed.enforcement import Enforcement
from testbed.errors import InvariantBroken, TestbedError
from topologies.errors import SpecError
from topologies.scale import Scale

AFTER_S = 10.0  # after the last line: what was planned with a delay happens
CALM_S = 240.0
MAX_EVENTS = 400_000
SETTLE_LEASES = 3.0  # after the end: the last messages arrive
STORY_LINES = 60
CRASHES = (  # what a core may raise that is a bug of it
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
    TestbedError,
    WorldStuck,
)


@dataclass(frozen=True, slots=True)
class StormFailure:
    """A breach: its subject, the rule, and what led to it."""

    subject: str
    rule: str
    story: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Return the rule without names and numbers: two failures of one kind are probably one bug."""
        words = re.sub(r"\b(?:h|od|j|b|a|d)\d+\b|\d+(?:\.\d+)?(?:e[-+]?\d+)?", "N", self.rule)
        return words.partition("\n")[0].partition("[")[0].partition("{")[0][:160]


@dataclass(frozen=True, slots=True)
class StormOutcome:
    """The end of a storm: its failure, if any, the number of events, counts of faults, and all facts."""

    failure: StormFailure | None
    events: int
    counts: Counter[str] = field(default_factory=Counter)
    facts: Sequence[Timed] = ()


def play(
    script: Script, *, tells_story: bool = False, world_of: type[StormWorld] = StormWorld
) -> StormOutcome:
    """Play the whole storm. SpecError: the script cannot be played at all."""
    ground = ground_of(script)
    try:
        world = world_of(ground, tells_story=tells_story)
    except ValueError as error:  # settings that do not go together
        raise SpecError(
            "settings", dict(script.settings), f"settings of which a world can be made ({error})"
        ) from None
    check(script, list(world.machines))
    failure = None
    try:
        run(world, script)
    except SpecError:
        raise
    except InvariantBroken as error:
        subject = error.subject.rpartition(": ")[2]
        failure = StormFailure(subject, error.rule, story_of(world, subject))
    except CRASHES as error:
        failure = _crashed(world, error)
    world.counts["fault: message lost"] += world.connections.lost
    world.counts[f"policy: {ground.protocol.policy}"] += 1
    return StormOutcome(failure, world.events, +world.counts, world.facts)


def run(world: StormWorld, script: Script) -> None:
    """Play all lines, then the calm. InvariantBroken: at the first breach."""
    for line in script.lines:
        world.run(line.at_s)
        perform(world, line)
    world.run(script.end_s + AFTER_S)
    calm(world)


def calm(world: StormWorld) -> None:
    """End all faults, and judge that every job finishes within bounds and that all rules were kept."""
    world.is_calm = True
    world.weather.clear()
    world.torn_for_s = world.usurped_for_s = None
    for link in world.env.campus.links:
        world.set_link(link.a, link.b, 1.0)
    for name in world.machines:
        world.fill(name, full=False)
        world.start(name)
        world.give_back(name)
    world.end_background()
    if left := run_until_over(world, CALM_S):
        raise broken(world, min(left), f"not over {CALM_S:.0f} s after the last fault: {left}")
    if world.events > MAX_EVENTS:
        raise broken(world, "the world", f"{world.events} events, at most {MAX_EVENTS} are sensible")
    world.run(world.now_s + SETTLE_LEASES * world.protocol.lease_s)
    check_nothing_is_left(world)
    for breach in promises(world):
        raise broken(world, breach.subject, f"promise: {breach.rule}: {breach.story[-1]}")
    check_admissions(world)


def run_until_over(world: VirtualWorld, within_s: float) -> dict[str, tuple[str, str | None]]:
    """Run on until every job is over, for `within_s` at most; return phase and host of each that is not."""
    limit_s = world.now_s + within_s
    while not world.over() and world.now_s < limit_s:
        if (
            world.terms.offer_ttl_s < inf
        ):  # an offer that lapsed comes back with an owner's next return only (paper B)
            cluster = world.coordinator.cluster
            senders = {flow.source for flow in cluster.flows.values()}
            for host in cluster.hosts.values():
                if host.is_volunteer and not host.jobs and host.name not in senders:
                    world.reclaim(host.name)
                    world.after(0.3, partial(world.give_back, host.name))
        world.run(world.now_s + 5.0)
    if world.over():
        return {}
    return {job.name: (job.phase.value, job.host) for job in world.coordinator.cluster.jobs.unfinished}


def promises(world: StormWorld) -> list[Broken]:
    """Judge the journal by the rules of a run, but for admissions, which `admissions` judges."""
    waived = not_promised(world.policy)
    waived[IN_TIME] = "a journal tells only of some faults"
    if world.protocol.enforcement == Enforcement.NONE:
        waived[RESERVED] = "nothing holds its senders to a share of a link"
        waived[IN_SHARE] = "nothing holds its senders to a share of a link"
    context = replace(context_of(world, waived), research=_undisturbed(world))
    if not world.leapt_at_s:
        return broken_promises(world.facts, context)
    # facts have the world's time, and the coordinator's clock leapt in the life of some jobs
    others = replace(context, not_promised=dict.fromkeys(RULES.keys() - {REPORTED}, "judged on all facts"))
    waived[REPORTED] = "judged on facts of one clock"
    return broken_promises(world.facts, replace(context, not_promised=waived)) + broken_promises(
        _of_one_clock(world), others
    )


def _of_one_clock(world: StormWorld) -> list[Timed]:
    """Return all facts but those of jobs that lived when the coordinator's clock leapt."""
    lives: dict[str, tuple[float, float]] = {}
    for at_s, fact in world.facts:
        if job := getattr(fact, "job", ""):
            lives[job] = (lives.get(job, (at_s, at_s))[0], at_s)
    leapt = {
        job
        for job, (first_s, last_s) in lives.items()
        if any(first_s <= at_s <= last_s for at_s in world.leapt_at_s)
    }
    return [(at_s, fact) for at_s, fact in world.facts if getattr(fact, "job", "") not in leapt]


def _undisturbed(world: StormWorld) -> list[ResearchSample]:
    """Return what research got in windows with no slow cable, with what senders took that had not yet read a lower grant.

    A sender whose agent stands still, or whose orders are late, sends at its rates of before, and another has its share already.
    """
    excesses = world.judges.invariants.excesses if world.judges is not None else []
    samples: list[ResearchSample] = []
    for sample in world.research.samples:
        links, from_s = frozenset(sample.way), sample.at_s - sample.window_s
        if any(
            fault.links and fault.acts_on("", frozenset(), links, from_s, sample.at_s)
            for fault in world.disturbances
        ):
            continue
        taken = dict.fromkeys(links, 0.0)
        for excess in excesses:
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


# ---------------------------------------------------------------- what went wrong


def _crashed(world: StormWorld, error: Exception) -> StormFailure:
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    at = (
        f"{where.tb_frame.f_code.co_filename.rpartition('/')[2]}:{where.tb_frame.f_code.co_name}"
        if where
        else ""
    )
    return StormFailure(
        "a core", f"{type(error).__name__} in {at}: {error}"[:300], tuple(world.env.story)[-STORY_LINES:]
    )


def story_of(world: StormWorld, subject: str) -> tuple[str, ...]:
    """Return the lines of the world's story that are about a job or host, and the last ones of all."""
    lines = [line for line in world.env.story if "EgressMeasured" not in line]
    word = re.compile(rf"\b{re.escape(subject)}\b")
    about = (
        [line for line in lines[:-8] if word.search(line)]
        if subject in {*world.jobs, *world.machines}
        else []
    )
    return (*about[-STORY_LINES:], *lines[-8:])
