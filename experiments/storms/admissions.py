"""Judge which admitted migrations of a storm had to be in time, and whether they were.

One is judged unless, between its notice and its end (or its deadline, if that is sooner), a fault acted on it that no admission
could foresee: on its two hosts, on a link of its way, on its job, or on the
coordinator. A fault elsewhere, before or after excuses nothing. Each that is not judged is counted by the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from experiments.results.history import Notice, notices, only
from experiments.results.rules import IN_TIME, not_promised
from experiments.results.rules.admissions import KINDS, excuse
from experiments.storms.world import StormWorld
from experiments.worlds.virtual.invariants import broken
from testbed.enforcement import Enforcement

JUDGED = "judged"
NAME = re.compile(r" [a-z]+[0-9]+\b")  # of a host: causes are counted without it


def check_admissions(world: StormWorld) -> None:
    """Count each admission in `world.counts`, as judged or by its excuse. InvariantBroken: one that is judged was late."""
    late: list[Notice] = []
    for notice, cause in excused_admissions(world):
        world.counts[f"admission: {NAME.sub('', cause) or JUDGED}"] += 1
        if not cause and not notice.in_time:
            late.append(notice)
    for notice in late:
        when = (
            "never ran on" if notice.finished_s is None else f"ran on {-(notice.margin_s or 0.0):.3f} s late"
        )
        rule = f"promise: {IN_TIME}: from {notice.source} to {notice.destination} with {notice.notice_s:.3f} s, it {when}"
        raise broken(world, notice.job, rule)


def excused_admissions(world: StormWorld) -> Iterator[tuple[Notice, str]]:
    """Yield each admitted migration, and its excuse ("" if it is judged). The run is over, so every deadline has passed."""
    row = not_promised(world.policy).get(IN_TIME)
    told = list(only(world.facts, KINDS))
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
            yield notice, _fault(world, until_over) or excuse(until_over, told) or ""


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
