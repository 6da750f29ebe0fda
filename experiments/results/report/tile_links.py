"""Links of a report's tiles: a chart or a table, and in it the very transfer, reclaim or job of the figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from experiments.results.history import Notice, Timed
from experiments.results.losses import interruptions
from experiments.results.report.tables import MAX_ROWS
from experiments.results.run_context import RunContext


class TileLink(NamedTuple):
    """A card of the page, and what to look at in it: a job, or an element by its id."""

    card: str
    job: str | None = None
    mark: str | None = None


def tile_links(facts: Sequence[Timed], context: RunContext, found: Sequence[Notice]) -> dict[str, TileLink]:
    """Return the link of each `Tile.link`."""
    led = {
        "jobs": TileLink("timeline"),
        "lost": TileLink("lost"),
        "work lost": TileLink("timeline"),
        "moves": TileLink("migrations"),
        "emergencies": TileLink("timeline"),
        "rates": TileLink("goodput", mark="worst-transfer"),
        "research": TileLink("research", mark="lowest-share"),
        "queue": TileLink("queue"),
        "switch": TileLink("switches"),
    }
    ended = [each for each in interruptions(facts) if each.lost_s > 0.0]
    emergencies = [each for each in ended if each.cause == "emergency"]
    for name, some in (("work lost", ended), ("emergencies", emergencies)):
        if some:
            led[name] = TileLink("timeline", max(some, key=lambda each: each.lost_s).job)
    # Late moves come before those in time, by the least margin.
    rows = [(n, notice) for n, notice in enumerate(found[:MAX_ROWS], 1) if notice.admitted_s is not None]
    if rows:
        tightest, _ = min(rows, key=lambda row: (bool(row[1].in_time), row[1].margin_s or 0.0))
        led["moves"] = TileLink("migrations", mark=f"notice-{tightest}")
    if context.switches:
        slowest = max(enumerate(context.switches, 1), key=lambda each: each[1].set_to_closed_s)[0]
        led["switch"] = TileLink("switches", mark=f"switch-{slowest}")
    return led
