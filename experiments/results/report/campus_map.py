"""The campus as a map: cores, buildings, switches, hosts, and how each host spent the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path

from markupsafe import Markup

from experiments.results.campus_layout import layout
from experiments.results.history import Timed, attempts, end_s
from experiments.results.pages import render
from experiments.results.report.timeline import spans
from experiments.results.run_context import RunContext

RATE = 36.0  # for the words of a rate beside the last cable


@dataclass(frozen=True)
class Use:
    """Shares of the run in which a host was busy (any job on it) and away (with its owner, under notice or silent)."""

    busy: float
    away: float
    reclaims: int


def campus_map(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Return the picture, as SVG; trunks beside the tree are dashed."""
    campus, drawn = context.campus, layout(context.campus)
    page = render(
        Path(__file__).with_name("campus_map.html"),
        width=drawn["width"] + RATE,
        height=drawn["height"],
        nodes=drawn["nodes"],
        small=drawn["small"],
        trunks=[link for link in drawn["links"] if "d" in link],
        access=drawn["access"],
        switches=campus.switches,
        hosts=[(campus.host_by_name[name], use) for name, use in _uses(facts, context).items()],
        thickness=lambda rate: max(1.5, min(6.0, 1.5 * (log10(max(rate, 1.0)) - 5.5))),
    )
    return Markup(page)


def _uses(facts: Sequence[Timed], context: RunContext) -> dict[str, Use]:
    until_s = end_s(facts, context.ended_at_s)
    busy: dict[str, list[tuple[float, float]]] = {}
    away: dict[str, list[tuple[float, float]]] = {}
    reclaims: dict[str, int] = {}
    for attempt in attempts(facts):
        ended_s = until_s if attempt.ended_s is None else attempt.ended_s
        busy.setdefault(attempt.host, []).append((attempt.dispatched_s, ended_s))
    for span in spans(facts, until_s):
        away.setdefault(span.host, []).append((span.from_s, span.to_s))
        reclaims[span.host] = reclaims.get(span.host, 0) + (span.kind == "closed")

    def share(some: list[tuple[float, float]]) -> float:
        return min(1.0, _covered(some) / max(until_s, 1e-9))

    return {
        name: Use(share(busy.get(name, [])), share(away.get(name, [])), reclaims.get(name, 0))
        for name in context.campus.host_by_name
    }


def _covered(some: list[tuple[float, float]]) -> float:
    total, reached = 0.0, 0.0
    for start, end in sorted(some):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
