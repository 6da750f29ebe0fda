"""Play of a script: the storm, then calm weather in which everything must come to its end; breaches are reported.

In the calm, faults and others' traffic are over, owners return, agents run. Then every job finishes within `CALM_S`,
and the `verdict` is good.
"""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

from experiments.results.history import Timed
from experiments.storms.commands import check, perform
from experiments.storms.script import Script
from experiments.storms.verdict import check_admissions, check_nothing_is_left, promises
from experiments.storms.world import StormWorld
from experiments.worlds.virtual.invariants import broken
from experiments.worlds.virtual.scheduler import WorldStuck
from experiments.worlds.virtual.world import VirtualWorld
from testbed.errors import InvariantBroken, TestbedError
from topologies.errors import SpecError

AFTER_S = 10.0  # after the last line: what was planned with a delay happens
CALM_S = 240.0
MAX_EVENTS = 400_000
SETTLE_LEASES = 3.0  # after the end: the last messages arrive
STORY_LINES = 60
CRASHES = (  # what a core may raise that is a bug of it
    *(ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError),
    *(TypeError, ValueError, TestbedError, WorldStuck),
)


@dataclass(frozen=True, slots=True)
class StormFailure:
    """A breach: its subject, the rule, and what led to it."""

    subject: str
    rule: str
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.subject}: {self.rule}"

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


def play(script: Script, *, tells_story: bool = False, world_of: type[StormWorld] = StormWorld) -> StormOutcome:
    """Play the whole storm. SpecError: the script cannot be played at all."""
    world = world_of(script, tells_story=tells_story)
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
        where = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{where.filename.rpartition('/')[2]}:{where.name}"
        rule = f"{type(error).__name__} in {at}: {error}"[:300]
        failure = StormFailure("a core", rule, tuple(world.env.story)[-STORY_LINES:])
    world.counts["fault: message lost"] += world.connections.lost
    world.counts[f"policy: {world.protocol.policy}"] += 1
    return StormOutcome(failure, world.events, +world.counts, world.facts)


def run(world: StormWorld, script: Script) -> None:
    """Play all lines, then the calm. InvariantBroken: at the first breach."""
    for line in script.lines:
        world.run(line.at_s)
        perform(world, line)
    world.run(max((line.at_s for line in script.lines), default=0.0) + AFTER_S)
    calm(world)


def calm(world: StormWorld) -> None:
    """End all faults, and judge that every job finishes within bounds and that all rules were kept."""
    world.is_calm = True
    world.windows, world.triggers = [], []
    world.torn_for_s = world.usurped_for_s = None
    for link in world.env.campus.links:
        world.links.set(link.a, link.b, 1.0)
    for name in world.machines:
        world.fill(name, full=False)
        world.start(name)
        world.give_back(name)
    world.others.end()
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
        # an offer that lapsed comes back with an owner's next return only (paper B)
        if world.terms.offer_ttl_s < inf:
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


def story_of(world: StormWorld, subject: str) -> tuple[str, ...]:
    """Return the lines of the world's story that are about a job or host, and the last ones of all."""
    lines = [line for line in world.env.story if "EgressMeasured" not in line]
    about: list[str] = []
    if subject in {*world.jobs, *world.machines}:
        word = re.compile(rf"\b{re.escape(subject)}\b")
        about = [line for line in lines[:-8] if word.search(line)]
    return (*about[-STORY_LINES:], *lines[-8:])
