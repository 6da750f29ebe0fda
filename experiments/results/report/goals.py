"""Goals of a report's tiles: a chart or a table, and in it the very transfer, reclaim or job of the figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from experiments.results.history import Notice, Timed
from experiments.results.losses import interruptions
from experiments.results.report.tables import MAX_ROWS
from experiments.results.run_context import RunContext


class Goal(NamedTuple):
    """A card of the page, and what to look at in it: a job, or an element by its id."""

    card: str
    job: str | None = None
    mark: str | None = None


def goals(facts: Sequence[Timed], context: RunContext, found: Sequence[Notice]) -> dict[str, Goal]:
    """Return the goal of each `Tile.goal`."""
    led = {
        "jobs": Goal("timeline"),
        "lost": Goal("lost"),
        "work lost": Goal("timeline"),
        "moves": Goal("migrations"),
        "emergencies": Goal("timeline"),
        "rates": Goal("goodput", mark="worst-transfer"),
        "research": Goal("research", mark="lowest-share"),
        "queue": Goal("queue"),
        "switch": Goal("switches"),
    }
    ended = [each for each in interruptions(facts) if each.lost_s > 0.0]
    emergencies = [each for each in ended if each.cause == "emergency"]
    for name, some in (("work lost", ended), ("emergencies", emergencies)):
        if some:
            led[name] = Goal("timeline", max(some, key=lambda each: each.lost_s).job)
    # Late moves come before those in time, by the least margin.
    rows = [(n, notice) for n, notice in enumerate(found[:MAX_ROWS], 1) if notice.admitted_s is not None]
    if rows:
        tightest, _ = min(rows, key=lambda row: (bool(row[1].in_time), row[1].margin_s or 0.0))
        led["moves"] = Goal("migrations", mark=f"notice-{tightest}")
    if context.switches:
        slowest = max(enumerate(context.switches, 1), key=lambda each: each[1].set_to_closed_s)[0]
        led["switch"] = Goal("switches", mark=f"switch-{slowest}")
    return led
