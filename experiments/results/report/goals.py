"""Where the tiles of a report lead: to a chart or a table, and there to the very transfer, reclaim or job that they speak of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from controller.core.model import facts as f
from experiments.results.history import Notice, Timed
from experiments.results.losses import interruptions
from experiments.results.report.tables import MOST_ROWS
from experiments.results.report.times import RunClock
from experiments.results.run_context import RunContext, research_shares


class Goal(NamedTuple):
    """A card of the page, and within it what is to be seen: a time in seconds "from to", a job, an element by its id."""

    card: str
    window: str | None = None
    job: str | None = None
    mark: str | None = None


def around(clock: RunClock, from_s: float, to_s: float) -> str:
    """The time to look at to see what happened between two moments, for `Goal.window`."""
    margin_s = max(1.5 * (to_s - from_s), clock.until_s / 40)
    return f"{max(0.0, from_s - margin_s):.6g} {min(clock.until_s, to_s + margin_s):.6g}"


def goals(
    facts: Sequence[Timed], context: RunContext, found: Sequence[Notice], clock: RunClock
) -> dict[str, Goal]:
    """Where each `Tile.goal` leads."""
    led = {name: Goal(card) for name, card in _CARDS.items()}
    ended = [each for each in interruptions(facts) if each.lost_s > 0.0]
    for name, some in (
        ("work lost", ended),
        ("emergencies", [each for each in ended if each.cause == "emergency"]),
    ):
        if some:
            worst = max(some, key=lambda each: each.lost_s)
            led[name] = Goal("timeline", around(clock, worst.at_s, worst.at_s), worst.job)
    # what was late before what was in time, by the least margin
    rows = [(n, notice) for n, notice in enumerate(found[:MOST_ROWS], 1) if notice.admitted_s is not None]
    if rows:
        tightest, _ = min(rows, key=lambda row: (bool(row[1].in_time), row[1].margin_s or 0.0))
        led["moves"] = Goal("migrations", mark=f"notice-{tightest}")
    ratios = [
        (fact.goodput_over_grant, at_s)
        for at_s, fact in facts
        if isinstance(fact, f.TransferFinished) and fact.goodput_over_grant is not None
    ]
    if ratios:
        _, at_s = min(ratios)
        led["rates"] = Goal("goodput", around(clock, at_s, at_s), mark="worst-transfer")
    if shares := research_shares(context):
        at_s = min(shares, key=lambda share: share.share).sample.at_s
        led["research"] = Goal("research", around(clock, at_s, at_s), mark="lowest-share")
    if context.switches:
        slowest = max(enumerate(context.switches, 1), key=lambda each: each[1].set_to_closed_s)[0]
        led["switch"] = Goal("switches", mark=f"switch-{slowest}")
    return led


_CARDS = {
    "jobs": "timeline",
    "lost": "lost",
    "work lost": "timeline",
    "moves": "migrations",
    "emergencies": "timeline",
    "rates": "goodput",
    "research": "research",
    "queue": "queue",
    "switch": "switches",
}
