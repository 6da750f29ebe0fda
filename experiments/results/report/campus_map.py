"""The campus as a map: cores, buildings, switches, hosts, and how each host spent the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log10

from markupsafe import Markup

from experiments.results.campus_layout import Row, layout
from experiments.results.history import Timed, attempts, end_s
from experiments.results.report.drawing import Picture, Shape, path
from experiments.results.report.timeline import spans
from experiments.results.run_context import RunContext
from topologies.spec import Host, Role, Switch, Tier
from topologies.units import format_rate

RATE = 36.0  # for the words of a rate beside the last cable


@dataclass(frozen=True)
class Use:
    """Shares of the run in which a host was busy (any job on it) and away (with its owner, under notice or silent)."""

    busy: float
    away: float
    reclaims: int


def campus_map(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Return the picture, as SVG; trunks beside the tree are dashed."""
    campus, drawn = context.campus, layout(context.campus, small_above=inf)
    nodes, shapes, switches = drawn["nodes"], list[Shape](), campus.switch_by_name
    for link in drawn["links"]:
        if link["a"] in switches and link["b"] in switches:
            upper, lower = sorted((nodes[link["a"]], nodes[link["b"]]), key=lambda node: float(node["y"]))
            shapes += _trunk(upper, lower, link)
    for switch in campus.switches:
        shapes += _switch(switch, nodes[switch.name])
        if hosts := [campus.host_by_name[n] for n in campus.neighbours[switch.name] if n not in switches]:
            rates = [campus.neighbours[switch.name][host.name].rate_bytes_per_s for host in hosts]
            shapes += _cable_of_hosts(nodes[switch.name], [nodes[host.name] for host in hosts], rates)
    for name, spent in _uses(facts, context).items():
        shapes += _host(campus.host_by_name[name], nodes[name], spent)
    width = drawn["width"] + RATE
    size = f"min-width:{min(width, 1240.0):.0f}px;max-width:{width:.0f}px"
    return Picture("Map of the campus", width, drawn["height"], look="map", style=size, shapes=shapes).svg()


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


def _trunk(upper: Row, lower: Row, link: Row) -> list[Shape]:
    """Return a trunk from the bottom of one switch to the top of another."""
    (x, y), (to_x, to_y) = ((node["x"] + node["w"] / 2, node["y"]) for node in (upper, lower))
    y += upper["h"] if y < to_y else 0.0
    if not link["tree"]:
        return [Shape(look="cable spare", d=path([(x + 8, y), (to_x + 8, to_y)]))]
    thick = max(1.5, min(6.0, 1.5 * (log10(max(link["rate"], 1.0)) - 5.5)))
    way = f"M{x:.1f},{y:.1f}V{(y + to_y) / 2 - 8:.1f}H{to_x:.1f}V{to_y:.1f}"
    rate = Shape(look="rate", x=to_x + 6, y=to_y - 8, text=format_rate(link["rate"]))
    return [Shape(look="cable", d=way, stroke=thick), rate]


def _switch(switch: Switch, node: Row) -> list[Shape]:
    of_building = switch.tier is Tier.DISTRIBUTION and switch.building not in (None, switch.name)
    name = f"{switch.name} · {switch.building}" if of_building else switch.name
    x, y = node["x"] + node["w"] / 2, node["y"] + 17
    return [
        Shape(look=f"switch {switch.tier}", **_box(node), rx=6),
        Shape(look="switch-name", x=x, y=y, text=name, anchor="middle"),
    ]


def _cable_of_hosts(node: Row, chips: Sequence[Row], rates: Sequence[float]) -> list[Shape]:
    """Return the cable from a switch to the grid of its hosts, with the rates of their links."""
    x, y = node["x"] + node["w"] / 2, node["y"] + node["h"]
    first = min(chip["y"] for chip in chips)
    middle = (min(chip["x"] for chip in chips) + max(chip["x"] + chip["w"] for chip in chips)) / 2
    way = f"M{x:.1f},{y:.1f}V{first - 16:.1f}H{middle:.1f}V{first - 4:.1f}"
    ends = dict.fromkeys(format_rate(each(rates)) for each in (min, max))
    return [
        Shape(look="cable", d=way, stroke=1.5),
        Shape(look="rate", x=x + 6, y=y + 11, text=" to ".join(ends)),
    ]


def _host(host: Host, node: Row, spent: Use) -> list[Shape]:
    x, y, inner = node["x"], node["y"], node["w"] - 10
    tip, small = f"{host.name} ({host.address})\ncoordinator", "control"
    bars: list[Shape] = []
    if host.role is not Role.COORDINATOR:
        shares = f"busy {spent.busy:.0%} of the time, away {spent.away:.0%}, {spent.reclaims} reclaims"
        tip = f"{host.name} ({host.address})\n{host.gpus} x {host.gpu_model}\n{shares}"
        unit = "slots" if host.role is Role.ON_DEMAND else "GPU" if host.gpus == 1 else "GPUs"
        small = f"{host.gpus} {unit}"
        parts = (0.0, 1.0, "use"), (0.0, spent.busy, "use busy"), (1.0 - spent.away, spent.away, "use away")
        bars = [
            Shape(look=look, x=x + 5 + inner * start, y=y + node["h"] - 6, width=inner * share, height=3)
            for start, share, look in parts
        ]
    return [
        Shape(look=f"chip {host.role}", **_box(node), rx=5, tip=tip),
        Shape(look="chip-name", x=x + 7, y=y + 15, text=host.name),
        Shape(look="chip-gpus", x=x + 7, y=y + 26, text=small),
        *bars,
    ]


def _box(node: Row) -> Row:
    return {"x": node["x"], "y": node["y"], "width": node["w"], "height": node["h"]}
